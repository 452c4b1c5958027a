"""From turns to proposals to accepted changes."""
