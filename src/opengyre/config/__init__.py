"""Every knob, validated, with its reason; loads nothing heavy."""
