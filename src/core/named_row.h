// Finds rows of tables by the names that users write: codecs, memories, methods, models, data sets.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "thinwire/near_miss.h"
#include "thinwire/options.h"
#include "thinwire/status.h"

namespace thinwire {

// A row of a table whose elements are rows, or pointers to rows that outlive it.
template <typename Element>
const auto& row_of(const Element& element) {
  if constexpr (std::is_pointer_v<Element>)
    return *element;
  else
    return element;
}
template <typename Table>
using RowOf = std::remove_cvref_t<decltype(row_of(*std::declval<const Table&>().begin()))>;

// What a row has itself, or its info has.
template <typename Row>
const auto& info_of(const Row& row) {
  if constexpr (requires { row.info; })
    return row.info;
  else
    return row;
}

// A table of names alone is one too.
template <typename Row>
std::string_view row_name(const Row& row) {
  if constexpr (std::is_convertible_v<const Row&, std::string_view>)
    return row;
  else
    return info_of(row).name;
}

// The row called `name`. Fails with "<origin>unknown <what> '<name>'", the names that there are,
// and the one that was probably meant.
template <typename Table>
Result<const RowOf<Table>*> find_row(const Table& table, std::string_view what,
                                     std::string_view name, std::string_view origin = "") {
  std::vector<std::string> names;
  for (const auto& element : table) {
    if (row_name(row_of(element)) == name) return &row_of(element);
    names.emplace_back(row_name(row_of(element)));
  }
  return Status::fail(ErrorCode::kUnknownName,
                      std::string(origin) + "unknown " + std::string(what) + " '" +
                          std::string(name) + "'; " +
                          (names.empty() ? "it has none" : known_names(name, names)));
}

// A row and what a text asks of it.
template <typename Row>
struct NamedRow {
  const Row* row;
  Options options;

  // The text that selects it, with every option spelt out: "topk:density=0.01,values=fp32".
  std::string canonical() const {
    const std::string settings = options.canonical();
    return std::string(row_name(*row)) + (settings.empty() ? "" : ":" + settings);
  }
};

// The row that `text`, "name:key=value,key=value", names, with its options checked against the
// row's. Fails with the known names or options.
template <typename Table>
Result<NamedRow<RowOf<Table>>> find_named_row(const Table& table, std::string_view what,
                                              std::string_view text) {
  Result<SpecText> spec = parse_spec(what, text);
  if (!spec) return spec.status();
  const std::string& name = spec.value().name;
  auto row = find_row(table, what, name);
  if (!row) return row.status();
  using Info = std::remove_cvref_t<decltype(info_of(*row.value()))>;
  const auto& options = [&]() -> const auto& {
    if constexpr (requires(const Info& info) { info.options; })
      return info_of(*row.value()).options;
    else
      return row.value()->options;
  }
  ();
  Result<Options> checked =
      parse_options(std::string(what) + " '" + name + "'", options, spec.value().settings);
  if (!checked) return checked.status();
  return NamedRow<RowOf<Table>>{.row = row.value(), .options = std::move(checked).value()};
}

}  // namespace thinwire
