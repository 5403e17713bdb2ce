// Influence as a page: the samples themselves, as pictures that are part of it.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <string>
#include <string_view>
#include <vector>

#include "cli/influence_views.h"
#include "cli/report/assets.h"
#include "cli/report/filled_text.h"
#include "cli/report/picture_uri.h"
#include "thinwire/version.h"

namespace thinwire::cli {
namespace {

std::string figure(const InfluenceSample& sample, std::string_view part) {
  std::string text = sample.true_label ? "<figure class=\"planted\">" : "<figure>";
  if (sample.picture.channels != 0)
    text += fmt::format("<img src=\"{}\" alt=\"{} sample {}\">", picture_uri(sample.picture), part,
                        sample.index);
  text += fmt::format("<figcaption>{} sample {}<br>influence {:.4g}<br>label {}", part,
                      sample.index, sample.influence, sample.label);
  if (sample.true_label) text += fmt::format(", planted: truly {}", *sample.true_label);
  return text +
         fmt::format("<br>predicted {}<br>probability of the label {:.3f}</figcaption></figure>\n",
                     sample.predicted, sample.probability);
}

std::string figures(std::string_view heading, const std::vector<InfluenceSample>& samples) {
  std::string text = fmt::format("<h3>{}</h3>\n", heading);
  if (samples.empty()) return text + "<p>None.</p>\n";
  text += "<div class=\"samples\">\n";
  for (const InfluenceSample& sample : samples) text += figure(sample, "training");
  return text + "</div>\n";
}

std::string checkpoint_table(const InfluenceReport& report) {
  std::string text =
      "<section>\n<h2>Checkpoints</h2>\n<div class=\"scrolls\"><table>\n"
      "<tr><th>step</th><th>learning rate</th><th>weights</th></tr>\n";
  for (const InfluenceCheckpoint& one : report.checkpoints)
    text += fmt::format("<tr><td>{}</td><td>{:.4g}</td><td>{}</td></tr>\n", one.step,
                        one.learning_rate, one.small ? "small" : "exact");
  return text + "</table></div>\n</section>\n";
}

}  // namespace

std::string influence_page(const InfluenceReport& report, bool ranking, const std::string& title) {
  std::string body;
  if (report.wrong)
    body += "<p>Training samples were ranked by their influence on themselves. " +
            found_sentence(*report.wrong) + " Frames mark them.</p>\n";
  for (const InfluenceOf& one : report.of) {
    const std::string_view part = to_string(report.part);
    body += fmt::format("<section>\n<h2>Of {} sample {}</h2>\n<div class=\"samples\">\n{}</div>\n",
                        part, one.sample.index, figure(one.sample, part));
    body += figures("Proponents", one.proponents) + figures("Opponents", one.opponents);
    body += "</section>\n";
  }
  if (ranking)
    body += "<section>\n<h2>Influence on themselves</h2>\n" +
            figures("The strongest training samples", report.ranking) + "</section>\n";
  body += checkpoint_table(report);
  return filled(influence_html(), {{"style", page_css()},
                                   {"title", inside_html(title)},
                                   {"about", inside_html(influence_about(report))},
                                   {"body", body},
                                   {"version", THINWIRE_VERSION}});
}

}  // namespace thinwire::cli
