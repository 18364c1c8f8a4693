"""The link: the tracking world in another process or on another machine."""
