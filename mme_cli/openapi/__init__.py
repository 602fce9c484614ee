"""The OpenAPI document of the tenant API, written from the code's own models (``make openapi``; a test compares).

`records` reads the answers from the records' ``document`` methods, types and docstrings, `operations` says which statuses a call may
answer with, `document` puts the document together, `page` writes the page of the site.
"""
