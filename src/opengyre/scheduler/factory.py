"""A scheduler by the name of its policy."""

from opengyre.config.run import PolicyName
from opengyre.scheduler.base import Policy, SchedulePlan
from opengyre.scheduler.colocate import Colocate
from opengyre.scheduler.elastic import Elastic
from opengyre.scheduler.forecast import Forecast
from opengyre.scheduler.scheduler import Scheduler
from opengyre.scheduler.static import StaticSplit


def make_policy(name: PolicyName, plan: SchedulePlan) -> Policy:
    """A policy. Raises UserError when the plan has no room for it."""
    match name:
        case "elastic":
            return Elastic()
        case "forecast":
            return Forecast()
        case "colocate":
            return Colocate()
        case "async":
            return StaticSplit(plan)


def evens_out(name: PolicyName) -> bool:
    """Whether the policy wants its executions spread anew between calls."""
    kinds: dict[PolicyName, type[Policy]] = {
        "elastic": Elastic,
        "forecast": Forecast,
        "colocate": Colocate,
        "async": StaticSplit,
    }
    return kinds[name].evens_out


def make_scheduler(plan: SchedulePlan, name: PolicyName) -> Scheduler:
    """A fresh scheduler. Raises UserError when the plan has no room for the policy."""
    return Scheduler(plan, make_policy(name, plan))
