"""Every parameter of Anthropic Messages, and what becomes of it.

Invariant: the official client's request types name no parameter that is missing here.
"""

from opengyre.proxy.dialects.offers import Offers, honoured, no_effect, not_applied, refused

SAMPLING = "the run samples all its calls alike, else their probabilities could not be compared"
BILLING = "nothing is billed"
CACHING = "prefixes are reused whatever is marked"

ANTHROPIC: Offers = {
    "model": honoured("any name is served and echoed"),
    "messages": honoured("text, thinking, tool_use, tool_result; roles user, assistant, system"),
    "messages.is_error": not_applied("a failed tool says so in its text", False),
    "system": honoured("a string or text blocks"),
    "max_tokens": honoured("and never more than the run's own limit and what the context has left"),
    "stream": honoured("the answer is sent once it is recorded; pings until then"),
    "tools": honoured("tools with an input_schema; others belong to the vendor's servers"),
    "tools.strict": not_applied("the policy writes arguments as it was trained to", False),
    "tools.type": not_applied(
        "tools of the vendor's servers are not shown to the policy", "custom"
    ),
    "tool_choice": honoured("auto and none; any and tool are refused"),
    "tool_choice.type": honoured("see tool_choice"),
    "tool_choice.name": honoured("see tool_choice"),
    "tool_choice.disable_parallel_tool_use": not_applied(
        "the policy may call several tools; all its calls are told", False
    ),
    "thinking": honoured("thinking blocks with a signature, whenever the policy thought"),
    "thinking.type": not_applied("the policy thinks as it was trained to", "adaptive", "enabled"),
    "thinking.budget_tokens": not_applied("the policy thinks as it was trained to"),
    "thinking.display": honoured("omitted: blocks with a signature and no text"),
    "output_config": honoured("see its members"),
    "output_config.effort": not_applied("the policy has one effort"),
    "output_config.task_budget": not_applied("the policy is told of no budget"),
    "output_config.format": refused("answers are not constrained to a schema"),
    "output_format": refused("answers are not constrained to a schema"),
    "context_management": honoured("the answer says that no edits were applied"),
    "context_management.edits": honoured("see context_management; compact edits are refused"),
    "stop_sequences": refused("an answer cut by a text would not be what the policy sampled"),
    "compaction": refused("no compaction is made here; ask for a summary in the messages"),
    "thread": refused("no conversation is kept for clients; send all messages"),
    "container": refused("nothing is run here"),
    "mcp_servers": refused("nothing is run here; connect to the servers in your program"),
    "temperature": not_applied(SAMPLING),
    "top_p": not_applied(SAMPLING),
    "top_k": not_applied(SAMPLING),
    "metadata": no_effect("whose call it is follows from its path and key"),
    "cache_control": no_effect(CACHING),
    "diagnostics": no_effect("tells of the vendor's cache"),
    "service_tier": no_effect(BILLING),
    "speed": no_effect("there is one"),
    "inference_geo": no_effect("the run's machines answer"),
    "user_profile_id": no_effect(BILLING),
    "workspace_id": no_effect(BILLING),
    "billing_policy": no_effect(BILLING),
    "fallback_credit_token": no_effect(BILLING),
    "fallbacks": no_effect("the policy declines nothing, so no other model is asked"),
    "betas": no_effect("what they switch on is named on its own"),
}
