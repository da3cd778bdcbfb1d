"""One root error, and one type for each boundary that an error can cross."""


class OpenGyreError(Exception):
    """Root of every error that this package raises on purpose."""


class UserError(OpenGyreError, ValueError):
    """Bad input: says what was wanted, what was found and what to do next."""

    def __init__(self, wanted: str, found: str, action: str) -> None:
        self.wanted, self.found, self.action = wanted, found, action
        super().__init__(f"wanted {wanted}; found {found}; {action}")


class SandboxError(OpenGyreError):
    """The sandbox could not be made, or died by itself."""


class HarnessError(OpenGyreError):
    """A harness program could not be started."""


class ProxyError(OpenGyreError):
    """A model call could not be answered through a fault of ours."""


class EngineError(OpenGyreError):
    """An engine refused or lost a request."""


class EvaluatorError(OpenGyreError):
    """An evaluator gave no usable reward."""


class LearnerError(OpenGyreError):
    """A training step could not be computed."""


class TransferError(OpenGyreError):
    """Weights or KV blocks did not arrive whole."""


class StoreError(OpenGyreError):
    """The durable record could not be written or read."""


class ClusterError(OpenGyreError):
    """A cell could not be started, reached or switched."""
