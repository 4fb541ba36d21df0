"""Byzantine attacks: model poisoning and data poisoning, to rehearse against."""
