"""The link to a simulator in another process; `docs/link.md` has the protocol. Importing this loads nothing.

| module | holds |
|---|---|
| `wire` | frames: bytes to headers and arrays, within their limits |
| `server`, `groups` | the simulator's side: connections and turns; a world a group |
| `connection`, `parent` | of a simulator: one connection; the process with which it ends |
| `client`, `channel` | one environment of the side that trains; its connection, with an end to every wait |
| `judge`, `pictures` | rewards, ends and pictures of simulators that leave them to the client |
| `address`, `launch` | where a simulator is, and how one is started for the environments of a process |
"""
