// Influence as JSON.
// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/influence_views.h"

namespace thinwire::cli {
namespace {

using Json = nlohmann::ordered_json;

Json sample_json(const InfluenceSample& sample) {
  Json json = {{"index", sample.index},
               {"influence", sample.influence},
               {"label", sample.label},
               {"predicted", sample.predicted},
               {"probability", sample.probability}};
  if (sample.true_label) json["true_label"] = *sample.true_label;
  return json;
}

Json list_json(const std::vector<InfluenceSample>& samples) {
  Json list = Json::array();
  for (const InfluenceSample& sample : samples) list.push_back(sample_json(sample));
  return list;
}

}  // namespace

std::string influence_json(const InfluenceReport& report, bool ranking) {
  Json json = {{"model", report.model},
               {"data", report.data},
               {"training_samples", report.training_samples},
               {"part", to_string(report.part)},
               {"checkpoints", Json::array()},
               {"of", Json::array()}};
  for (const InfluenceCheckpoint& one : report.checkpoints)
    json["checkpoints"].push_back({{"name", one.name},
                                   {"step", one.step},
                                   {"learning_rate", one.learning_rate},
                                   {"small", one.small}});
  for (const InfluenceOf& one : report.of) {
    Json of = sample_json(one.sample);
    of["proponents"] = list_json(one.proponents);
    of["opponents"] = list_json(one.opponents);
    json["of"].push_back(std::move(of));
  }
  if (ranking) json["self"] = list_json(report.ranking);
  if (report.wrong) {
    Json found = Json::array();
    for (const auto& share : report.wrong->shares)
      found.push_back({{"looked_at", share.looked_at}, {"found", share.found}});
    json["wrong_labels"] = {{"planted", report.wrong->planted}, {"shares", std::move(found)}};
  }
  return json.dump(2) + "\n";
}

}  // namespace thinwire::cli
