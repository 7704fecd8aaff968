"""What is kept: tokens, text, embeddings, recall, and one agent's memory over a store."""
