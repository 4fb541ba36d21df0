"""Real federations: folders for machines, guards for sites, and the rehearsal of it all on one machine."""
