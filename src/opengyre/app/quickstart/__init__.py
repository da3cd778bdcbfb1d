"""The bundled policy and configuration of the quickstart."""
