"""How to point agent programs at the proxy, as lines to paste."""

import json

PROGRAMS = ("claude-code", "codex", "qwen-code", "opencode", "mini-swe-agent")
MODEL = "policy"
"""Any name is served."""


def directions(base: str, key: str, harness: str) -> list[tuple[str, str]]:
    """(program, command line) for one program, or for all when it is none of them."""
    lines = {
        "claude-code": _claude_code(base, key),
        "codex": _codex(base, key),
        "qwen-code": (
            f"OPENAI_BASE_URL={base}/v1 OPENAI_API_KEY={key} OPENAI_MODEL={MODEL} "
            "qwen --auth-type openai"
        ),
        "opencode": _opencode(base, key),
        "mini-swe-agent": (
            f"OPENAI_API_BASE={base}/v1 OPENAI_API_KEY={key} MSWEA_COST_TRACKING=ignore_errors "
            f"mini -m openai/{MODEL}"
        ),
    }
    names = (harness,) if harness in lines else PROGRAMS
    return [(name, lines[name]) for name in names]


def _claude_code(base: str, key: str) -> str:
    """Without the marks that differ between conversations, so that prompts share their beginning."""
    return (
        f"ANTHROPIC_BASE_URL={base} ANTHROPIC_API_KEY={key} ANTHROPIC_MODEL={MODEL} "
        f"CLAUDE_CODE_SUBAGENT_MODEL={MODEL} ANTHROPIC_DEFAULT_HAIKU_MODEL={MODEL} "
        "CLAUDE_CODE_ATTRIBUTION_HEADER=0 DISABLE_PROMPT_CACHING=1 "
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1 claude"
    )


def _codex(base: str, key: str) -> str:
    settings = {
        "model": MODEL,
        "model_provider": "opengyre",
        "model_providers.opengyre.name": "opengyre",
        "model_providers.opengyre.base_url": f"{base}/v1",
        "model_providers.opengyre.wire_api": "responses",
        "model_providers.opengyre.env_key": "OPENGYRE_KEY",
    }
    given = " ".join(f"-c {name}='{json.dumps(value)}'" for name, value in settings.items())
    return f"OPENGYRE_KEY={key} codex {given}"


def _opencode(base: str, key: str) -> str:
    config = {
        "provider": {
            "opengyre": {
                "npm": "@ai-sdk/openai-compatible",
                "options": {"baseURL": f"{base}/v1", "apiKey": key},
                "models": {MODEL: {}},
            }
        }
    }
    return f"OPENCODE_CONFIG_CONTENT='{json.dumps(config)}' opencode -m opengyre/{MODEL}"
