"""Tables for studies of robust rules, called by study.py: the error of every rule under every attack."""
# SPDX-License-Identifier: Apache-2.0
import re
import statistics

BREAKS = 0.1  # so far above the mean's error without an attack


def runs_of(found: dict) -> list[dict]:
    return [run for variants in found.values() for seeds in variants.values() for run in seeds.values()]


def is_of_attacks(found: dict) -> bool:
    return any(run["settings"].get("run.attack") for run in runs_of(found))


def attacks_of(run: dict) -> list[str]:
    text = run["settings"].get("run.attack", "")
    return text.split(" and ") if text else []


def attackers_of(run: dict) -> int:
    """Of all its attacks; one without a number of ranks has one."""
    ranks = [re.search(r"\branks=(\d+)", attack) for attack in attacks_of(run)]
    return sum(int(found[1]) if found else 1 for found in ranks)


def name_of(run: dict) -> str:
    return " and ".join(attack.partition(":")[0] for attack in attacks_of(run))


def error_of(run: dict) -> float:
    held = run.get("final_hold_out_error")
    return run["final_test_error"] if held is None else held


# {(attackers, attack, codec, variant): {seed: error}}; the variant without what the grid adds to its name.
def errors_of(found: dict) -> dict:
    errors: dict = {}
    for variants in found.values():
        for variant, seeds in variants.items():
            for seed, run in seeds.items():
                key = (attackers_of(run), name_of(run), run["settings"]["exchange.codec"], variant.partition(",")[0])
                if seed in errors.setdefault(key, {}):
                    raise ValueError(f"two runs of {key} with seed {seed}: their attacks differ by strength alone")
                errors[key][seed] = error_of(run)
    return errors


def ordered(errors: dict, place: int) -> list:
    """The values at this place of the keys, in the order of the study."""
    return list(dict.fromkeys(key[place] for key in errors))


def cell(by_seed: dict, base: dict) -> str:
    """The mean, its distance to the base by seed where there is one, and bold where the rule breaks."""
    if not by_seed:
        return ""
    mean = f"{100 * statistics.mean(by_seed.values()):.1f}"
    pairs = [by_seed[seed] - base[seed] for seed in by_seed if seed in base]
    if not pairs:
        return mean
    away = statistics.mean(pairs)
    text = f"{mean} ({100 * away:+.1f})"
    return f"**{text}**" if away > BREAKS else text


def attack_table(study: dict, found: dict) -> list[str]:
    """A table for each number of attackers; {case: {variant: {seed: summary}}}."""
    errors = errors_of(found)
    runs = runs_of(found)
    part = "held-out" if runs[0].get("final_hold_out_error") is not None else "test"
    lines = [f"Cells are the {part} error in percent, a mean over seeds, and its distance in points to the "
             f"{study['first']}'s without an attack and with the same codec, paired by seed. A rule that ends more than "
             f"{100 * BREAKS:.0f} points above that breaks, and is bold. {len(runs)} runs; their seeds: "
             + ", ".join(map(str, sorted({seed for seeds in errors.values() for seed in seeds}))) + "."]
    attacks = [attack for attack in ordered(errors, 1) if attack]
    for f in sorted(ordered(errors, 0)):
        columns = attacks if f else [""]
        lines += ["", f"## {f} of {runs[0]['world_size']} attack" if f else "## No attack", "",
                  "| codec | rule | " + " | ".join(columns if f else ["error"]) + " |",
                  "| --- | --- |" + " ---: |" * len(columns)]
        for codec in ordered(errors, 2):
            base = errors.get((0, "", codec, study["first"]), {})
            for variant in ordered(errors, 3):
                cells = [cell(errors.get((f, attack, codec, variant), {}), base) for attack in columns]
                if any(cells):
                    lines.append(f"| {codec} | {variant} | " + " | ".join(cells) + " |")
    return lines
