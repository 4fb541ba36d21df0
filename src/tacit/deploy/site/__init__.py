"""The site's side of a deployed federation: configuration, agreement, guard and worker."""
