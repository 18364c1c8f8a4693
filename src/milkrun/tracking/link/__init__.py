"""The link to a simulator in another process; `docs/link.md` has the protocol. Importing this package loads no module.

| module | holds |
|---|---|
| `wire` | what both sides share: frames within their limits, options and secrets of a `hello` |
| `server`, `group` | the simulator's side: connections and messages; the world of a group of environments |
| `client` | the client's side: one connection, and one environment over it |
| `scoring` | rewards and ends of simulators that leave them to the client |
| `launch` | starts simulators as child processes |
| `bridge` | a simulator in one file, without Milkrun, to be copied for foreign simulators |
"""
