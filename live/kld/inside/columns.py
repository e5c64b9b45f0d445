"""What is told of every position, in this order, and the limits of one request."""

from __future__ import annotations

#: Name and number of the protocol between client and server.
PROTOCOL = 1
PREFIX = "/selvage/kld/"
TOKEN_HEADER = "x-selvage-kld-token"

#: Columns of an answer, float64 each. kl: KL(reference || server) in nats; reverse_kl: the other way round;
#: tv: total variation; same_top: 1 where both prefer the same token; reference_logp and candidate_logp:
#: log-probability of the prompt's own next token; linf and l2: distances of logits at temperature 1;
#: abs_log_w and token_prob_error: expectations over the server's own distribution.
COLUMNS = (
    "kl",
    "reverse_kl",
    "tv",
    "same_top",
    "reference_logp",
    "candidate_logp",
    "linf",
    "l2",
    "abs_log_w",
    "token_prob_error",
)

#: Most of what one request may ask for; positions are next tokens of prompts.
MOST_PROMPTS = 256
MOST_POSITIONS = 16_384
#: Most numbers in one answer of whole rows.
MOST_ROW_VALUES = 1 << 26
LONGEST_BODY = 4 << 20
