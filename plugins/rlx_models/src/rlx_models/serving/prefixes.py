"""`PrefixCache`: keys and values of processed tokens in pages, for later prompts that begin with the same tokens.

A page has 16 consecutive tokens of a text. Its keys and values are a function of these tokens and of all tokens before them, so
that texts with a common prefix share its pages. The index is a tree: the key of a page is the identity of the page before it and
the page's tokens, which are compared themselves, not a hash of them alone.

Source:
    Kwon et al. 2023, "Efficient Memory Management for Large Language Model Serving with PagedAttention", arXiv:2309.06180,
    sections 4.3 and 4.4 (pages, sharing); Zheng et al. 2024, "SGLang", arXiv:2312.07104, section 3 (tree, least recently used).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from attrs import frozen

from rlx_models.architectures import Decoding
from rlx_models.generation.programs import CACHE_ENTRIES, PROMPT_MULTIPLE, compiled_program, zero_cache
from rlx_models.model import PretrainedModel

PAGE_TOKENS: Final = PROMPT_MULTIPLE
"""Tokens of a page."""
ROOT: Final = -1
"""The identity before the first page of a text."""

PageKey = tuple[int, tuple[int, ...]]
"""The identity of the page before a page, and the tokens of the page."""


@frozen
class Page:
    """A page that has keys and values.

    Attributes:
        number: Its index in the pool.
        identity: A number that no other page has, before or after.
    """

    number: int
    identity: int


class PageIndex:
    """The pages by the tokens of a text up to their end. The least recently used page is replaced when all have tokens.

    Args:
        capacity: The number of pages.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._pages: OrderedDict[PageKey, Page] = OrderedDict()
        self._identities = 0

    def __len__(self) -> int:
        return len(self._pages)

    def find(self, tokens: Sequence[int]) -> list[int]:
        """Return the numbers of the pages of the longest prefix that is in the index."""
        matched = self._match(tokens)
        self._use(matched)
        return [self._pages[key].number for key in matched]

    def add(self, tokens: Sequence[int]) -> tuple[int, list[int]]:
        """Add the full pages of a text, at most as many as there are.

        Returns:
            The number of its first pages that were in the index, and the numbers of the following ones, whose keys and values
            the caller stores.
        """
        keys = self._match(tokens)
        count, new = len(keys), list[int]()
        self._use(keys)
        for start in range(
            count * PAGE_TOKENS, min(len(tokens) // PAGE_TOKENS, self.capacity) * PAGE_TOKENS, PAGE_TOKENS
        ):
            # The pages of this text were used last: another one is replaced.
            number = len(self._pages) if len(self._pages) < self.capacity else self._pages.popitem(last=False)[1].number
            key = (self._pages[keys[-1]].identity if keys else ROOT, tuple(tokens[start : start + PAGE_TOKENS]))
            self._pages[key] = Page(number, self._identities)
            self._identities += 1
            keys.append(key)
            new.append(number)
        self._use(keys)
        return count, new

    def _match(self, tokens: Sequence[int]) -> list[PageKey]:
        keys, identity = list[PageKey](), ROOT
        for start in range(0, len(tokens) - PAGE_TOKENS + 1, PAGE_TOKENS):
            key = (identity, tuple(tokens[start : start + PAGE_TOKENS]))
            page = self._pages.get(key)
            if page is None:
                break
            keys.append(key)
            identity = page.identity
        return keys

    def _use(self, keys: Sequence[PageKey]) -> None:
        """Make pages the last used ones: the first page of a text is replaced after the pages that follow it."""
        for key in reversed(keys):
            self._pages.move_to_end(key)


class PrefixCache:
    """The pages of an engine, and their keys and values on the target.

    Keys and values are copied between the pages and the caches of prompts and slots. So pages have no references: a page may be
    replaced as soon as it is copied.

    Args:
        num_pages: The number of pages.
        cache_dtype: The dtype of keys and values.

    Attributes:
        hits: Prompts of which pages were copied.
        reused_tokens: Tokens of prompts that were copied and not processed.
    """

    def __init__(
        self, model: PretrainedModel, decoding: Decoding, num_pages: int, cache_dtype: str, target: str | None
    ) -> None:
        self._copy = compiled_program(model, CACHE_ENTRIES[cache_dtype], target)
        self._cache_dtype = cache_dtype
        self._decoding, self._target = decoding, target or self._copy.report.target
        self.num_pages = num_pages
        self.clear()

    def clear(self) -> None:
        """Remove all pages, and set the counts to 0."""
        self.index = PageIndex(self.num_pages)
        length = self.num_pages * PAGE_TOKENS
        self._pool: Any = zero_cache(self._decoding, 1, length, self._target, self._cache_dtype, is_exact=True)
        self.hits = self.reused_tokens = 0

    def load(self, tokens: Sequence[int], max_pages: int, padding: int, cache: Any) -> tuple[int, Any]:
        """Copy the keys and values of the longest prefix of a prompt into its cache, after its padding.

        Args:
            tokens: The prompt.
            max_pages: The maximum number of pages.
            padding: The number of entries before the first token.
            cache: The cache [1, capacity, features] of each layer, which is donated.

        Returns:
            The number of entries of the cache that need not be computed, including the padding, a multiple of 16; and the cache.
        """
        pages = self.index.find(tokens)[:max_pages]
        if not pages:
            return 0, cache
        count = len(pages) * PAGE_TOKENS
        # Entries of padding are hidden, but must be numbers.
        source = np.concatenate([np.full(padding, pages[0] * PAGE_TOKENS), _entries_of(pages)[: count - padding]])
        self.hits += 1
        self.reused_tokens += count - padding
        return count, self._copy(cache, self._pool, np.arange(count), source)

    def store(self, tokens: Sequence[int], cache: Any, first_entry: int) -> None:
        """Copy the full pages of a text from a cache, those that are not in the pool yet.

        Args:
            tokens: The tokens whose keys and values are in the cache.
            cache: The cache [texts, capacity, features] of each layer.
            first_entry: The index of the first token among the `texts · capacity` entries.
        """
        count, pages = self.index.add(tokens)
        if pages:
            entries = first_entry + count * PAGE_TOKENS + np.arange(len(pages) * PAGE_TOKENS)
            self._pool = self._copy(self._pool, cache, _entries_of(pages), entries)


def _entries_of(pages: Sequence[int]) -> np.ndarray:
    """Return the indices i64[pages · 16] of the entries of pages in the pool."""
    return (np.array(pages)[:, None] * PAGE_TOKENS + np.arange(PAGE_TOKENS)).ravel()
