// Attack: the table of attacks, and the gradients that they change.
// SPDX-License-Identifier: Apache-2.0
#include "train/attack.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "core/named_row.h"
#include "core/random.h"
#include "thinwire/agreement.h"
#include "train/attacking_group.h"
#include "train/describe.h"
#include "train/run_device.h"

namespace thinwire {

// What an attacker has before it: its own gradient as one vector, and, where the attack asks for
// them, those of the honest workers, one after another.
struct AttackScene {
  const Options& options;
  RandomKey key;  // of this worker and step
  std::span<const float> honest;
  size_t honest_workers;
  std::vector<float>& kept;  // from step to step; of attacks with AttackEntry::keeps
};

struct AttackEntry {
  std::string_view name;
  std::string_view summary;
  std::vector<OptionInfo> options = {};
  bool sees_honest = false;
  bool keeps = false;  // something from step to step
  void (*change)(const AttackScene& scene,
                 std::span<float> gradient) = nullptr;  // of the gradient, if any
  bool of_labels = false;
  std::optional<MessageAttack> of_messages = std::nullopt;
};

namespace {

OptionInfo attackers() {
  return {.name = "ranks",
          .type = OptionType::kInteger,
          .fallback = "1",
          .min = 1,
          .max = 1 << 15,
          .unit = "workers",
          .help = "attackers, the workers of the highest ranks"};
}

OptionInfo number(std::string_view name, std::string_view fallback, std::string_view help) {
  return {.name = name,
          .type = OptionType::kNumber,
          .fallback = fallback,
          .min = 0,
          .max = 1e30,
          .help = help};
}

// Calls body(i, mean, deviation) for each coordinate of the honest gradients.
template <class Body>
void for_honest(const AttackScene& scene, size_t count, const Body& body) {
  const auto workers = static_cast<double>(scene.honest_workers);
  for (size_t i = 0; i < count; ++i) {
    double sum = 0, square_sum = 0;
    for (size_t worker = 0; worker < scene.honest_workers; ++worker)
      sum += scene.honest[worker * count + i];
    const double mean = sum / workers;
    for (size_t worker = 0; worker < scene.honest_workers; ++worker) {
      const double away = scene.honest[worker * count + i] - mean;
      square_sum += away * away;
    }
    body(i, mean, std::sqrt(square_sum / workers));
  }
}

void flip_sign(const AttackScene& scene, std::span<float> gradient) {
  const auto scale = static_cast<float>(-scene.options.number("scale"));
  for (float& value : gradient) value *= scale;
}

void send_noise(const AttackScene& scene, std::span<float> gradient) {
  const auto deviation = static_cast<float>(scene.options.number("std"));
  for (size_t i = 0; i < gradient.size(); ++i)
    gradient[i] = deviation * random_normal(scene.key, i);
}

void send_a_little(const AttackScene& scene, std::span<float> gradient) {
  const double z = scene.options.number("z");
  for_honest(scene, gradient.size(), [&](size_t i, double mean, double deviation) {
    gradient[i] = static_cast<float>(mean - z * deviation);
  });
}

void turn_mean(const AttackScene& scene, std::span<float> gradient) {
  const double epsilon = scene.options.number("epsilon");
  for_honest(scene, gradient.size(), [&](size_t i, double mean, double /*deviation*/) {
    gradient[i] = static_cast<float>(-epsilon * mean);
  });
}

void copy_one(const AttackScene& scene, std::span<float> gradient) {
  const auto of = static_cast<size_t>(scene.options.integer("of"));
  const auto row = scene.honest.subspan(of * gradient.size(), gradient.size());
  std::copy(row.begin(), row.end(), gradient.begin());
}

void send_nan(const AttackScene& /*scene*/, std::span<float> gradient) {
  std::fill(gradient.begin(), gradient.end(), std::numeric_limits<float>::quiet_NaN());
}

void send_zeros(const AttackScene& /*scene*/, std::span<float> gradient) {
  std::fill(gradient.begin(), gradient.end(), 0.0f);
}

void send_first(const AttackScene& scene, std::span<float> gradient) {
  if (scene.kept.size() != gradient.size()) scene.kept.assign(gradient.begin(), gradient.end());
  std::copy(scene.kept.begin(), scene.kept.end(), gradient.begin());
}

const auto& list_attacks() {
  static const std::array<AttackEntry, 11> rows = {{
      {.name = "sign_flip",
       .summary = "the own gradient times -scale",
       .options = {attackers(), number("scale", "1", "of the own gradient")},
       .change = flip_sign},
      {.name = "noise",
       .summary = "normal noise",
       .options = {attackers(), number("std", "200", "standard deviation of each value")},
       .change = send_noise},
      {.name = "alie",
       .summary = "a little is enough: the honest mean minus z honest standard deviations",
       .options = {attackers(), number("z", "1.5", "standard deviations")},
       .sees_honest = true,
       .change = send_a_little},
      {.name = "ipm",
       .summary = "inner product manipulation: the honest mean times -epsilon",
       .options = {attackers(), number("epsilon", "0.5", "of the honest mean")},
       .sees_honest = true,
       .change = turn_mean},
      {.name = "mimic",
       .summary = "the gradient of one honest worker",
       .options = {attackers(),
                   {.name = "of",
                    .type = OptionType::kInteger,
                    .fallback = "0",
                    .min = 0,
                    .max = 1 << 15,
                    .help = "its rank"}},
       .sees_honest = true,
       .change = copy_one},
      {.name = "label_flip",
       .summary = "the gradient of labels C - 1 - l in place of l, of C classes",
       .options = {attackers()},
       .of_labels = true},
      {.name = "nan", .summary = "NaN", .options = {attackers()}, .change = send_nan},
      {.name = "zeros", .summary = "zeros", .options = {attackers()}, .change = send_zeros},
      {.name = "replay",
       .summary = "the gradient of its first step, in every step",
       .options = {attackers()},
       .keeps = true,
       .change = send_first},
      {.name = "silence",
       .summary = "no values at all; the worker takes part in everything else",
       .options = {attackers()},
       .of_messages = MessageAttack::kSilence},
      {.name = "equivocation",
       .summary = "other values to workers of odd ranks than to the others",
       .options = {attackers()},
       .of_messages = MessageAttack::kEquivocation},
  }};
  return rows;
}

using NamedAttack = NamedRow<AttackEntry>;

// "alie:ranks=2 and silence": the workers of the highest ranks are those of the last attack.
Result<std::vector<NamedAttack>> parse_attacks(const std::string& text) {
  constexpr std::string_view kAnd = " and ";
  std::vector<NamedAttack> attacks;
  for (size_t begin = 0; begin != std::string::npos;) {
    const size_t end = text.find(kAnd, begin);
    auto attack = find_named_row(list_attacks(), "attack", text.substr(begin, end - begin));
    if (!attack) return attack.status();
    attacks.push_back(std::move(attack).value());
    begin = end == std::string::npos ? end : end + kAnd.size();
  }
  return attacks;
}

int attackers_of(const std::vector<NamedAttack>& attacks) {
  int64_t count = 0;
  for (const NamedAttack& attack : attacks) count += attack.options.integer("ranks");
  return static_cast<int>(std::min<int64_t>(count, std::numeric_limits<int>::max()));
}

// The attack of a rank of `size`; null: it is honest.
const NamedAttack* attack_of(const std::vector<NamedAttack>& attacks, int rank, int size) {
  int64_t first = size;
  for (auto attack = attacks.rbegin(); attack != attacks.rend(); ++attack) {
    first -= attack->options.integer("ranks");
    if (rank >= first) return &*attack;
  }
  return nullptr;
}

// Gradients as one vector, and back. One that is absent counts as zeros.
std::vector<float> take_gradients(torch::nn::Module& module) {
  std::vector<float> all;
  for (const TrainableParameter& parameter : trainable_parameters(module)) {
    const torch::Tensor& gradient = parameter.tensor.grad();
    const size_t begin = all.size(), count = static_cast<size_t>(parameter.tensor.numel());
    all.resize(begin + count);
    if (!gradient.defined()) continue;
    const torch::Tensor values = moved(gradient.to(torch::kFloat32), torch::kCPU);
    std::copy_n(values.const_data_ptr<float>(), count, all.data() + begin);
  }
  return all;
}

void put_gradients(torch::nn::Module& module, std::vector<float>& all) {
  size_t begin = 0;
  for (const TrainableParameter& parameter : trainable_parameters(module)) {
    const torch::Tensor& tensor = parameter.tensor;
    const torch::Tensor values = torch::from_blob(all.data() + begin, tensor.sizes());
    tensor.mutable_grad() = values.to(tensor.device(), tensor.scalar_type(), /*non_blocking=*/false,
                                      /*copy=*/true);
    begin += static_cast<size_t>(tensor.numel());
  }
}

}  // namespace

Status check_attack(const std::string& text) { return parse_attacks(text).status(); }

std::unique_ptr<Group> attacking_group(const Options& recipe, Group& group) {
  const std::string& text = recipe.text("run.attack");
  if (text.empty()) return nullptr;
  const auto attacks = parse_attacks(text).value();
  const NamedAttack* const mine = attack_of(attacks, group.rank(), group.size());
  if (mine == nullptr || !mine->row->of_messages) return nullptr;
  return make_attacking_group(*mine->row->of_messages, group);
}

// What an attacker keeps from step to step; the others have it empty. With another number of workers
// an attacker goes on with what the worker at its place kept, or begins anew.
class KeptByAttack final : public Stateful {
 public:
  std::vector<float> values;

  StateArrays save() const override {
    return {make_state(kValues, std::span<const float>(values), OnResize::kCopy)};
  }
  size_t held_bytes() const override { return values.capacity() * sizeof(float); }
  Status load(const StateArrays& arrays) override {
    const StateArray* const saved = find_state(arrays, kValues);
    std::vector<float> loaded(saved == nullptr ? 0 : saved->data.size() / sizeof(float));
    if (Status status = copy_state(arrays, kValues, loaded); !status) return status;
    values = std::move(loaded);
    return Status::ok();
  }

 private:
  static constexpr const char* kValues = "values";
};

struct Attack::Plan {
  std::vector<NamedAttack> attacks;
  const NamedAttack* mine;  // null: this worker is honest
  uint64_t seed;
  size_t honest;       // workers
  bool sees_honest;    // an attack
  KeptByAttack* kept;  // null: no attack keeps anything
};

Attack::Attack(const Options& recipe, Group& group, Store& store) : group_(group) {
  const std::string& text = recipe.text("run.attack");
  if (recipe.flag("run.elastic"))
    return;  // which has none, and whose workers do not all come here at once
  require_agreement(group, "run.attack", "run.attack=" + text + '\n');
  if (text.empty()) return;
  auto attacks = parse_attacks(text).value();
  const auto refuse = [&](const std::string& why) {
    throw AgreedError(ErrorCode::kBadOption, "run.attack = " + text + ": " + why);
  };
  const int honest = group.size() - attackers_of(attacks);
  if (honest < 1)
    refuse("the run has " + std::to_string(group.size()) +
           " workers, and one at least must be honest");
  bool sees_honest = false, keeps = false;
  for (const NamedAttack& attack : attacks) {
    if (attack.row->name == "mimic" && attack.options.integer("of") >= honest)
      refuse("the worker that is copied must be one of the " + std::to_string(honest) +
             " honest ones, 0 to " + std::to_string(honest - 1));
    sees_honest |= attack.row->sees_honest;
    keeps |= attack.row->keeps;
  }
  plan_ = std::make_unique<Plan>(Plan{.attacks = std::move(attacks),
                                      .mine = nullptr,
                                      .seed = static_cast<uint64_t>(recipe.integer("train.seed")),
                                      .honest = static_cast<size_t>(honest),
                                      .sees_honest = sees_honest,
                                      .kept = nullptr});
  if (keeps)
    plan_->kept =
        &store.open<KeptByAttack>("run.attack", [] { return std::make_unique<KeptByAttack>(); });
  plan_->mine = attack_of(plan_->attacks, group.rank(), group.size());
}

Attack::~Attack() = default;

bool Attack::holds_gradients() const noexcept {
  return plan_ != nullptr &&
         (plan_->sees_honest || (plan_->mine != nullptr && plan_->mine->row->change != nullptr));
}

torch::Tensor Attack::labels(const torch::Tensor& targets, const torch::Tensor& outputs) const {
  if (plan_ == nullptr || plan_->mine == nullptr || !plan_->mine->row->of_labels) return targets;
  if (outputs.dim() < 2 || targets.scalar_type() != torch::kInt64)
    throw Error(ErrorCode::kUnsupported,
                "run.attack = label_flip: this task's samples have no labels of classes");
  return outputs.size(1) - 1 - targets;
}

void Attack::change(uint64_t step, torch::nn::Module& module) {
  if (!holds_gradients()) return;
  std::vector<float> own = take_gradients(module), all;
  if (plan_->sees_honest) {
    all.resize(own.size() * static_cast<size_t>(group_.size()));
    group_.all_gather(std::as_bytes(std::span(own)), std::as_writable_bytes(std::span(all)));
  }
  if (plan_->mine == nullptr || plan_->mine->row->change == nullptr) return;
  std::vector<float> nothing;
  const AttackScene scene{.options = plan_->mine->options,
                          .key = {.seed = plan_->seed,
                                  .use = RandomUse::kTest,
                                  .step = step,
                                  .stream = static_cast<uint32_t>(group_.rank())},
                          .honest = std::span<const float>(all),
                          .honest_workers = plan_->honest,
                          .kept = plan_->kept != nullptr ? plan_->kept->values : nothing};
  plan_->mine->row->change(scene, own);
  put_gradients(module, own);
}

}  // namespace thinwire
