"""The options, the runner and the privacy tools, under the names that users of federated-survival know."""
