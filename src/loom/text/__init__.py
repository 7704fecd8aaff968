"""Language alone: scripts, words, dates, names, statements, duplicates, the thesaurus, tokens and the sanitizer.

Pure functions of a text, in English and Chinese. Nothing here depends on records, an index or a store.
"""

__all__: list[str] = []
