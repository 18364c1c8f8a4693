"""The link to a simulator in another process: frames (`wire`), the simulator's side (`server`, `groups`), the side that
trains (`client`, `launch`). `docs/link.md` has the protocol. Importing this loads nothing."""
