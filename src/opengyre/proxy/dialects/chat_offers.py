"""Every parameter of OpenAI Chat Completions, and what becomes of it.

Invariant: the official client's request types name no parameter that is missing here.
"""

from opengyre.proxy.dialects.offers import Offers, honoured, no_effect, not_applied, refused

SAMPLING = "the run samples all its calls alike, else their probabilities could not be compared"
PENALTY = "it would change the probabilities that are recorded"
BILLING = "nothing is billed"
CACHING = "prefixes are reused whatever is marked"
SCHEMA = "answers are not constrained to a schema"

CHAT: Offers = {
    "model": honoured("any name is served and echoed"),
    "messages": honoured("text; roles system and developer anywhere, user, assistant, tool"),
    "messages.name": not_applied("the policy is told roles only"),
    "max_completion_tokens": honoured("and never more than the run's limit and the context's room"),
    "max_tokens": honoured("the older name of max_completion_tokens"),
    "stream": honoured("the answer is sent once it is recorded; comments until then"),
    "stream_options": honoured("see its members"),
    "stream_options.include_usage": honoured("a last chunk with usage and no choices"),
    "stream_options.include_obfuscation": no_effect("nothing is padded"),
    "tools": honoured("function and custom tools"),
    "tools.strict": not_applied("the policy writes arguments as it was trained to", False),
    "tools.format": not_applied("the policy writes free text as it was trained to", "text"),
    "tool_choice": honoured("auto and none; all others are refused"),
    "parallel_tool_calls": not_applied(
        "the policy may call several tools; all its calls are told", True
    ),
    "response_format": honoured("text only"),
    "response_format.type": refused(SCHEMA, "text"),
    "response_format.json_schema": refused(SCHEMA),
    "n": refused("ask again for another answer", 1),
    "stop": refused("an answer cut by a text would not be what the policy sampled"),
    "logprobs": refused("probabilities are recorded, not told"),
    "top_logprobs": refused("probabilities are recorded, not told"),
    "logit_bias": refused(PENALTY),
    "frequency_penalty": refused(PENALTY),
    "presence_penalty": refused(PENALTY),
    "modalities": refused("this policy writes text only", ["text"]),
    "audio": refused("this policy writes text only"),
    "functions": refused("the older form of tools; use tools"),
    "function_call": refused("the older form of tool_choice; use tool_choice", "auto"),
    "web_search_options": refused("nothing is searched here"),
    "moderation": refused("nothing is moderated here"),
    "temperature": not_applied(SAMPLING),
    "top_p": not_applied(SAMPLING),
    "seed": not_applied("the run seeds its calls"),
    "reasoning_effort": not_applied("the policy thinks as it was trained to"),
    "verbosity": not_applied("the policy has one verbosity", "medium"),
    "prediction": no_effect("only speeds up"),
    "store": no_effect("calls are recorded for the run, and cannot be fetched"),
    "metadata": no_effect("only marks what is stored"),
    "user": no_effect("whose call it is follows from its path and key"),
    "safety_identifier": no_effect("whose call it is follows from its path and key"),
    "service_tier": no_effect(BILLING),
    "prompt_cache_key": no_effect(CACHING),
    "prompt_cache_options": no_effect(CACHING),
    "prompt_cache_retention": no_effect(CACHING),
}
