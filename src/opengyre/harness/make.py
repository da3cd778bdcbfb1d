"""From configuration to harness.

Invariant: the program of a harness that is returned is installed.
"""

from opengyre.config.run import HarnessSection
from opengyre.harness.base import Harness
from opengyre.harness.claude_code import ClaudeCode
from opengyre.harness.codex import Codex
from opengyre.harness.command import OtherProgram
from opengyre.harness.mini_swe_agent import MiniSweAgent
from opengyre.harness.opencode import OpenCode
from opengyre.harness.qwen_code import QwenCode


def make_harness(section: HarnessSection) -> Harness:
    """Raises UserError that names the package to install."""
    match section.name:
        case "claude-code":
            return ClaudeCode.installed(section.packages)
        case "codex":
            return Codex.installed(section.packages)
        case "qwen-code":
            return QwenCode.installed(section.packages)
        case "opencode":
            return OpenCode.installed(section.packages)
        case "mini-swe-agent":
            return MiniSweAgent.installed(section.packages)
        case "command":
            return OtherProgram.installed(section.command)
