"""Who rolls out, who trains, when. Pure: events and a time in, decisions out."""
