"""The door that harnesses call: parse, match, route, generate, record, stream."""
