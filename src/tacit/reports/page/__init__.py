"""Documents made of blocks: HTML, Markdown, notebooks and SVG."""
