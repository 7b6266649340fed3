"""A byte-level tokenizer.json: one id a byte, so that any text goes in and comes out unchanged."""

from __future__ import annotations

from dinfc.frontend.config import ModelConfig

SPECIALS = ("<|bos|>", "<|eos|>", "<|pad|>")


def byte_level_json(config: ModelConfig) -> str:
    """tokenizer.json whose bos, eos and pad are the configuration's; bytes take the other ids in ascending order.

    No beginning-of-text token is added by itself. Raises ValueError if the configuration has no room for 259 ids or
    its special ids are not among the first ones.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    special_ids = dict(zip(SPECIALS, (config.bos_token_id, config.eos_token_id, config.pad_token_id), strict=True))
    total = 256 + len(SPECIALS)
    if (
        len(set(special_ids.values())) != len(SPECIALS)
        or max(special_ids.values()) >= total
        or total > config.vocab_size
    ):
        raise ValueError(f"special ids {special_ids} and 256 bytes do not fill the ids 0..{total - 1}")
    free = (i for i in range(total) if i not in special_ids.values())
    vocab = special_ids | {character: next(free) for character in byte_characters()}
    tokenizer = Tokenizer(models.BPE(vocab=dict(sorted(vocab.items(), key=lambda item: item[1])), merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in SPECIALS])
    return str(tokenizer.to_str(pretty=True)) + "\n"


def byte_characters() -> tuple[str, ...]:
    """The printable character that stands for each byte 0..255 in a byte-level vocabulary.

    Bytes that are printable in Latin-1 stand for themselves, the others take the characters from U+0100 on.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = (chr(0x100 + n) for n in range(256))
    return tuple(chr(byte) if byte in printable else next(others) for byte in range(256))
