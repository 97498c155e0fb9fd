"""The three readers of PTX text. `docs/readers.md` says why there are three, what each costs and which law holds between them.

- `lines` and `statements` read a body line by line and statement by statement. `module`, `declarations` and `sections` read what is
  around the bodies.
- `templates` reads a body by the shapes of its lines and builds no nodes. `nodes` builds them when a program asks for them.
- `reference` reads with the grammar `ptx.lark`. It defines the language, reads the rare spellings and words the errors.

`ptxkit.grammar.read` is the one entry. Code outside `ptxkit.grammar` imports nothing from this package.
"""
