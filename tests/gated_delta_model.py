"""The recurrent gated delta rule once more, shared with nothing: plain loops over sequences, heads and tokens."""

from __future__ import annotations

import numpy as np


def recurrent_gated_delta_rule(
    query,
    key,
    value,
    beta,
    state,
    actual_seq_lengths,
    ssm_state_indices,
    g=None,
    gk=None,
    num_accepted_tokens=None,
    scale_value=1.0,
) -> dict[str, np.ndarray]:
    """Arguments and results as hybrid_ops.ops.recurrent_gated_delta_rule.meaning; float64, rounded where stored."""
    tokens, heads, group = len(query), value.shape[1], value.shape[1] // key.shape[1]
    pool, out = state.copy(), np.zeros_like(value)
    begin = 0
    for b in range(len(actual_seq_lengths)):
        start, begin = begin, begin + max(int(actual_seq_lengths[b]), 0)
        rows = range(min(start, tokens), min(begin, tokens))
        slots = (
            ssm_state_indices[b] if ssm_state_indices.ndim == 2 else ssm_state_indices[rows.start : rows.stop]
        )
        step = 1 if num_accepted_tokens is None else int(num_accepted_tokens[b])
        if not rows or step < 1 or step > len(slots) or not 0 <= slots[step - 1] < len(pool):
            continue  # an inactive sequence: its rows stay zero, the pool as it is
        now = [pool[slots[step - 1], h].astype(np.float64) for h in range(heads)]
        for t, slot in zip(rows, slots, strict=False):
            if not 0 <= slot < len(pool):
                continue
            for h in range(heads):
                k = key[t, h // group].astype(np.float64)
                q = query[t, h // group].astype(np.float64) * scale_value
                decay = np.ones(len(k))
                for gate in (g, gk):
                    if gate is not None:
                        decay = decay * np.exp(gate[t, h].astype(np.float64))
                old = now[h] * decay
                delta = (value[t, h].astype(np.float64) - old @ k) * float(beta[t, h])
                now[h] = old + np.outer(delta, k)
                out[t, h] = (now[h] @ q).astype(out.dtype)
            for h in range(heads):
                pool[slot, h] = now[h].astype(pool.dtype)
    return {"out": out, "state": pool}
