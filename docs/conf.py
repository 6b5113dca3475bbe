"""How Sphinx builds the site: `make docs`. Styles and scripts lie next to the pages, which open without a network."""

project = "lumos-df"
extensions = ["myst_parser"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = project
html_show_copyright = False
html_copy_source = False
html_show_sourcelink = False
