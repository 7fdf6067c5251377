"""The texts that the demonstration stores besides the documents, and the questions that they answer."""

from __future__ import annotations

from muniment.demo.documents import Document

NOTE = Document(
    "a note of the team",
    "Decision: payment cards are never stored by us. The provider keeps them and hands us a token; a stolen "
    "database therefore holds nothing that a thief could spend.",
)
NOTE_QUESTION = "where do customers' bank details live"

NEWS = (
    "The nightly invoice export moved to Thursday and is now called `invoice-export-v2.4.7`. Invoices paid by bank "
    "transfer come first, reminders for overdue payments last; the auditors collect the file on Friday morning."
)
NEWS_NAME = "invoice-export-v2.4.7"
NEWS_QUESTION = "when do bills reach the accountants"
LATER = (
    "The quarterly penguin census moved to Sunday and is now called `census-count-v3.0.1`. Chicks are weighed first, "
    "the oldest birds of the colony last; the keepers publish the numbers in spring."
)
LATER_NAME = "census-count-v3.0.1"
LATER_QUESTION = "how many Antarctic animals live at our zoo"
