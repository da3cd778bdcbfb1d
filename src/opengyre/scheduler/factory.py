"""A scheduler by the name of its policy."""

from opengyre.config.run import PolicyName
from opengyre.scheduler.base import Policy, SchedulePlan
from opengyre.scheduler.colocate import Colocate
from opengyre.scheduler.elastic import Elastic
from opengyre.scheduler.scheduler import Scheduler
from opengyre.scheduler.static import StaticSplit


def make_scheduler(plan: SchedulePlan, name: PolicyName) -> Scheduler:
    """A fresh scheduler. Raises UserError when the plan has no room for the policy."""
    policy: Policy
    match name:
        case "elastic":
            policy = Elastic()
        case "colocate":
            policy = Colocate()
        case "async":
            policy = StaticSplit(plan)
    return Scheduler(plan, policy)
