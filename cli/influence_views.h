// What thinwire influence shows: as tables, as JSON, as a page of pictures.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "thinwire/influence.h"

namespace thinwire::cli {

std::string influence_text(const InfluenceReport& report, bool ranking);
std::string influence_json(const InfluenceReport& report, bool ranking);
std::string influence_page(const InfluenceReport& report, bool ranking, const std::string& title);

// "lenet on mnist, 5 checkpoints, 60,000 training samples".
std::string influence_about(const InfluenceReport& report);

// "93.1% of 2,981 wrong labels are among the 10% of the training samples with the largest ..."; of
// three shares.
std::string found_sentence(const WrongLabelsFound& found);

}  // namespace thinwire::cli
