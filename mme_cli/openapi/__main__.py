"""Write the OpenAPI document and its page: ``python -m mme_cli.openapi``."""

from __future__ import annotations

from mme_cli.openapi.document import DOCUMENT, build, text_of
from mme_cli.openapi.page import PAGE, page_of

if __name__ == "__main__":
    document = build()
    DOCUMENT.write_text(text_of(document), "utf-8")
    PAGE.write_text(page_of(document), "utf-8")
    print(f"wrote {DOCUMENT} and {PAGE}")
