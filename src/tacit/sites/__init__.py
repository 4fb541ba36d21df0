"""Who holds what: tables, sites and federations, how data are split over sites, how sites are drawn."""
