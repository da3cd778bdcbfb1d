"""Every parameter of OpenAI Responses, and what becomes of it.

Invariant: the official client's request types name no parameter that is missing here.
"""

from opengyre.proxy.dialects.offers import Offers, honoured, no_effect, not_applied, refused

SAMPLING = "the run samples all its calls alike, else their probabilities could not be compared"
BILLING = "nothing is billed"
CACHING = "prefixes are reused whatever is marked"
KEPT = "no conversation is kept for clients; send the whole input"
SCHEMA = "answers are not constrained to a schema"
THINKING = "the policy thinks as it was trained to"

RESPONSES: Offers = {
    "model": honoured("any name is served and echoed"),
    "input": honoured("a string, or messages, reasoning, calls and their outputs"),
    "instructions": honoured("the beginning of the system text"),
    "max_output_tokens": honoured("and never more than the run's limit and the context's room"),
    "stream": honoured("the answer is sent once it is recorded; comments until then"),
    "stream_options": honoured("see its members"),
    "stream_options.include_obfuscation": no_effect("nothing is padded"),
    "tools": honoured("function, custom and namespace tools"),
    "tools.strict": not_applied("the policy writes arguments as it was trained to", False),
    "tools.format": not_applied("the policy writes free text as it was trained to", "text"),
    "tools.type": not_applied("tools of the vendor's servers are not shown to the policy"),
    "tool_choice": honoured("auto and none; all others are refused"),
    "parallel_tool_calls": not_applied(
        "the policy may call several tools; all its calls are told", True
    ),
    "include": honoured("reasoning.encrypted_content; logprobs are refused"),
    "reasoning": honoured("reasoning items with a summary, whenever the policy thought"),
    "reasoning.summary": honoured("the summary is what the policy thought, word for word"),
    "reasoning.generate_summary": honoured("the older name of reasoning.summary"),
    "reasoning.effort": not_applied(THINKING),
    "reasoning.context": not_applied(THINKING),
    "reasoning.mode": not_applied(THINKING),
    "text": honoured("see its members"),
    "text.format": honoured("text only"),
    "text.format.type": refused(SCHEMA, "text"),
    "text.format.schema": refused(SCHEMA),
    "text.format.name": refused(SCHEMA),
    "text.format.strict": refused(SCHEMA),
    "text.format.description": refused(SCHEMA),
    "text.verbosity": not_applied("the policy has one verbosity", "medium"),
    "previous_response_id": refused(KEPT),
    "conversation": refused(KEPT),
    "prompt": refused("no templates are kept here; send the whole input"),
    "background": refused("answers are not kept for later; wait for this one"),
    "background_options": refused("answers are not kept for later; wait for this one"),
    "truncation": refused("nothing is dropped from the input", "disabled"),
    "context_management": refused("no compaction is made here; ask for a summary in the input"),
    "top_logprobs": refused("probabilities are recorded, not told"),
    "moderation": refused("nothing is moderated here"),
    "temperature": not_applied(SAMPLING),
    "top_p": not_applied(SAMPLING),
    "max_tool_calls": no_effect("counts calls that the vendor's servers make"),
    "image": no_effect("there are no images"),
    "access_programs": no_effect("there are none"),
    "store": no_effect("calls are recorded for the run, and cannot be fetched"),
    "metadata": no_effect("echoed"),
    "client_metadata": no_effect("about the program, not the conversation"),
    "user": no_effect("whose call it is follows from its path and key"),
    "safety_identifier": no_effect("whose call it is follows from its path and key"),
    "service_tier": no_effect(BILLING),
    "prompt_cache_key": no_effect(CACHING),
    "prompt_cache_options": no_effect(CACHING),
    "prompt_cache_retention": no_effect(CACHING),
}
