"""One Hypothesis profile for all: no deadlines, since machines are noisy."""

from hypothesis import settings

settings.register_profile("opengyre", deadline=None, max_examples=40)
settings.load_profile("opengyre")
