// Tests of tensor-parallel ranks against the same network in one process: results, bytes, faults.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <limits>
#include <map>

#include "exchange/testing/tampering_group.h"
#include "thinwire/trainer.h"
#include "train/pipeline/boundary_loop.h"
#include "train/tensor/tensor_testing.h"

namespace thinwire {
namespace {

using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::SizeIs;

Settings ranks(int count) { return {{"tensor.ranks", std::to_string(count)}}; }

class Ranks : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Counts, Ranks, ::testing::Values(1, 2, 4));

// The ranks' sums of products have another order of additions than the whole network's.
TEST_P(Ranks, MatchOneProcessToRounding) {
  const Settings sgd = {
      {"optimizer.momentum", "0.9"}, {"optimizer.weight_decay", "0.01"}, {"clip.norm", "0.5"}};
  // Adam would take whole steps along gradients that are nothing but rounding: those of the keys'
  // biases are zero.
  const Settings adam = {
      {"optimizer.name", "adam"}, {"optimizer.lr", "0.001"}, {"optimizer.epsilon", "0.001"}};
  for (const Settings& more : {sgd, adam}) {
    for (const char* passes : {"1", "3"}) {
      TextOptions options{.settings = more, .dropout = 0.25, .width = 128};
      const StagedResult one = run_text(1, options);
      options.settings = with(with(more, ranks(GetParam())), {{"train.micro_batches", passes}});
      const StagedResult split = run_text(GetParam(), options);
      EXPECT_LT(distance(split.weights, one.weights), 2e-5);
      EXPECT_NEAR(split.summary.final_test_loss, one.summary.final_test_loss, 1e-5);
      ASSERT_THAT(split.steps, SizeIs(one.steps.size()));
      for (size_t i = 0; i < one.steps.size(); ++i)
        EXPECT_NEAR(split.steps[i].loss, one.steps[i].loss, 1e-5) << i;
    }
  }
}

TEST(Tensor, TwoNetworksShareABatch) {
  const Settings more = {{"clip.norm", "0.5"}, {"train.micro_batches", "2"}};
  TextOptions options{.settings = more};
  const StagedResult one = run_text(1, options);
  options.settings = with(more, ranks(2));
  const StagedResult two = run_text(4, options);
  EXPECT_LT(distance(two.weights, one.weights), 1e-5);
  EXPECT_NEAR(two.steps[3].loss, one.steps[3].loss, 1e-5);

  options.settings = with(options.settings, {{"exchange.codec", "topk:density=0.1"}});
  const StagedResult fewer = run_text(4, options);
  EXPECT_LT(fewer.summary.sent_bytes_per_step, two.summary.sent_bytes_per_step);
}

// The last batch of an epoch has one sample: the second network has none.
TEST(Tensor, MayHaveNoSamplesInAStep) {
  TextOptions options{.samples = 41};
  const StagedResult one = run_text(1, options);
  options.settings = with(ranks(2), {{"train.micro_batches", "3"}});
  const StagedResult two = run_text(4, options);
  EXPECT_LT(distance(two.weights, one.weights), 1e-5);
  ASSERT_EQ(two.steps.size(), one.steps.size());
  for (size_t i = 0; i < one.steps.size(); ++i)
    EXPECT_NEAR(two.steps[i].loss, one.steps[i].loss, 1e-5);
}

// A batch of 20 samples in two micro-batches, 6 x 64 values each; both ranks send each tensor to
// one other.
TEST(Tensor, CountsTheBytesOfEachSumAndDirection) {
  const TextOptions options{.settings =
                                with(ranks(2), {{"train.micro_batches", "2"},
                                                {"train.drop_last", "true"},
                                                {"tensor.forward", "uniform:bits=4,block=tensor"},
                                                {"tensor.backward", "fp16"},
                                                {"tensor.layers", "1"}})};
  const StagedResult result = run_text(2, options);
  constexpr uint64_t kValues = 2 * 20 * 6 * 64, kMessages = 2 * 2, kSize = 4, kHead = 48 + 24;
  for (const PipelineReport& step : result.pipelines) {
    ASSERT_THAT(step.boundaries, SizeIs(4));
    const std::vector<std::string> names = {"block1.attention", "block1.mlp", "block2.attention",
                                            "block2.mlp"};
    for (size_t i = 0; i < 4; ++i) {
      const bool compressed = i >= 2;  // the last block
      const auto& [name, forward, backward] = step.boundaries[i];
      EXPECT_EQ(name, names[i]);
      EXPECT_EQ(forward.values, kValues);
      EXPECT_EQ(backward.values, kValues);
      EXPECT_EQ(forward.payload_bytes, compressed ? kMessages * (kSize + 8) + kValues / 2
                                                  : kMessages * kSize + 4 * kValues);
      EXPECT_EQ(backward.payload_bytes, kMessages * kSize + (compressed ? 2 : 4) * kValues);
      EXPECT_EQ(forward.message_bytes, forward.payload_bytes + kMessages * kHead);
    }
    EXPECT_GT(step.idle_share, 0);
    EXPECT_LT(step.idle_share, 1);
  }
  uint64_t sent = 0;
  for (const auto& sum : result.pipelines[0].boundaries)
    sent += sum.forward.message_bytes + sum.backward.message_bytes + 2 * kMessages * 8;
  EXPECT_EQ(result.summary.sent_bytes_per_step, static_cast<double>(sent) / 2);
}

// One step of one block, written out: the partial products, and the gradients behind the first
// matrices, each through its codec, with the gradient passing straight through.
class Oracle {
 public:
  Oracle(const std::string& forward, const std::string& backward) : task_(text_task(0, 1)) {
    for (auto& item : task_.module->named_parameters()) weights_[item.key()] = item.value();
    BoundarySpec spec{.name = "oracle", .sample_shape = {kTextLength, 64}, .samples = 20};
    spec.codec = forward;
    spec.per_sample = forward.starts_with("topk");
    forward_ = std::make_unique<BoundaryLoop>(spec);
    spec.codec = backward;
    backward_ = std::make_unique<BoundaryLoop>(spec);
  }

  torch::Tensor loss(const Batch& batch) {
    const torch::Tensor x = task_.layers[0].forward(batch.inputs);
    const torch::Tensor y =
        x + pair(norm(x, "norm1"), "project", [&](const torch::Tensor& z, int r) {
          std::vector<torch::Tensor> of_rank;
          for (int part = 0; part < 3; ++part)  // two heads: one for each rank
            of_rank.push_back(linear(z, "attend", 64 * part + 32 * r, 32).unsqueeze(1));
          torch::Tensor scores =
              of_rank[0].matmul(of_rank[1].transpose(2, 3)) / std::sqrt(32.0) +
              torch::full({kTextLength, kTextLength}, -std::numeric_limits<float>::infinity())
                  .triu(1);
          return scores.softmax(-1).matmul(of_rank[2]).squeeze(1);
        });
    const torch::Tensor z =
        y + pair(norm(y, "norm2"), "narrow", [&](const torch::Tensor& u, int r) {
          return torch::gelu(linear(u, "widen", 128 * r, 128));
        });
    const torch::Tensor out = task_.layers[2].forward(z);
    return torch::nn::functional::cross_entropy(out.flatten(0, 1), batch.targets.flatten());
  }
  Task& task() { return task_; }

 private:
  torch::Tensor weight(const std::string& name) { return weights_.at("block1." + name); }
  torch::Tensor norm(const torch::Tensor& x, const std::string& name) {
    return torch::layer_norm(x, {64}, weight(name + ".weight"), weight(name + ".bias"));
  }
  torch::Tensor linear(const torch::Tensor& x, const std::string& name, int begin, int count) {
    return torch::linear(x, weight(name + ".weight").narrow(0, begin, count),
                         weight(name + ".bias").narrow(0, begin, count));
  }
  template <typename First>
  torch::Tensor pair(const torch::Tensor& x, const std::string& second, const First& first) {
    torch::Tensor sum = weight(second + ".bias");
    for (int r = 0; r < 2; ++r) {
      const torch::Tensor copy = x.view_as(x);
      copy.register_hook([this](const torch::Tensor& g) { return backward_->pass(g); });
      const torch::Tensor units = first(copy, r);
      const torch::Tensor product = torch::linear(
          units, weight(second + ".weight").narrow(1, r * units.size(2), units.size(2)));
      const torch::Tensor lost = forward_->pass(product.detach()) - product.detach();
      sum = sum + (product + lost);
    }
    return sum;
  }

  Task task_;
  std::map<std::string, torch::Tensor> weights_;
  std::unique_ptr<BoundaryLoop> forward_, backward_;
};

TEST(Tensor, CompressesEveryPartOfASum) {
  for (const auto& [forward, backward] : {std::pair{"uniform:bits=3,block=tensor", "fp32"},
                                          std::pair{"fp32", "uniform:bits=3,block=tensor"},
                                          std::pair{"topk:density=0.2", "topk:density=0.3"}}) {
    const TextOptions options{.settings = with(ranks(2), {{"train.epochs", "1"},
                                                          {"optimizer.lr", "0.5"},
                                                          {"tensor.forward", forward},
                                                          {"tensor.backward", backward}}),
                              .blocks = 1,
                              .samples = 20};
    const StagedResult result = run_text(2, options);
    ASSERT_THAT(result.steps, SizeIs(1));

    Oracle oracle(forward, backward);
    std::vector<uint64_t> ids(20);  // in any order, for these codecs
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = i;
    const torch::Tensor loss = oracle.loss(ToyText(20).fetch(ids, {}));
    EXPECT_NEAR(result.steps[0].loss, loss.item<double>(), 1e-5);
    loss.backward();
    const torch::NoGradGuard no_grad;
    std::vector<torch::Tensor> weights, before;
    for (torch::Tensor& weight : oracle.task().module->parameters()) {
      before.push_back(weight.detach().clone());
      weights.push_back(weight.detach() - 0.5 * weight.grad());
    }
    EXPECT_LT(distance(result.weights, weights), 2e-5) << forward << ", " << backward;
    EXPECT_GT(distance(before, weights), 1e-2);
  }
}

struct Way {
  const char* name;
  Settings settings;
};
void PrintTo(const Way& way, std::ostream* out) { *out << way.name; }

class SummedIn : public ::testing::TestWithParam<Way> {
 protected:
  static Settings settings() {
    return with(with(ranks(2), {{"train.micro_batches", "2"},
                                {"train.drop_last", "true"},
                                {"optimizer.name", "adam"},
                                {"optimizer.lr", "0.003"}}),
                GetParam().settings);
  }
};
INSTANTIATE_TEST_SUITE_P(
    Ways, SummedIn,
    ::testing::Values(
        Way{"bits", {{"tensor.forward", "uniform:bits=4"}, {"tensor.backward", "uniform:bits=8"}}},
        Way{"random", {{"tensor.forward", "qsgd"}, {"tensor.backward", "fp16"}}},
        Way{"ef",
            {{"tensor.forward", "topk:density=0.25"},
             {"tensor.backward", "topk:density=0.5"},
             {"tensor.forward_memory", "ef"},
             {"tensor.backward_memory", "ef21"}}},
        Way{"scheduled",
            {{"tensor.forward", "fp32 | 1: topk:density=linear(0.5;0.25;3)"},
             {"tensor.layers", "1"}}},
        Way{"code",
            {{"tensor.autoencoder", "4x"},
             {"tensor.forward", "fp16"},
             {"tensor.backward", "uniform:bits=8"}}}),
    [](const auto& way) { return way.param.name; });

TEST_P(SummedIn, LearnsAndIsTestedWithAndWithoutCompression) {
  const TextOptions options{
      .settings = with(settings(), {{"train.epochs", "4"}}), .samples = 200, .held_out = 21};
  const StagedResult result = run_text(2, options);
  EXPECT_LT(result.steps.back().loss, 0.7 * result.steps.front().loss);
  bool differ = false;
  for (const EvaluationEvent& test : result.tests) {
    ASSERT_TRUE(test.compressed_error && test.compressed_loss && test.compressed_hold_out_error);
    differ |= *test.compressed_loss != test.loss;
    EXPECT_NEAR(*test.compressed_loss, test.loss, 0.3 * test.loss + 0.1);
  }
  EXPECT_TRUE(differ);
  EXPECT_GT(result.summary.codec_ratio, 1);
}

TEST_P(SummedIn, RunsAgainBitForBit) {
  const TextOptions options{.settings = settings()};
  const StagedResult first = run_text(2, options), again = run_text(2, options);
  EXPECT_TRUE(same_bits(first.weights, again.weights));
  EXPECT_EQ(first.summary.sent_bytes_per_step, again.summary.sent_bytes_per_step);
}

// What a layer gives, or the loss, is infinite in the step behind two good ones, on one rank.
StagedResult spoiled(TextOptions options, int at_rank, bool in_loss) {
  options.change = [=](int rank, Task& task) {
    if (rank != at_rank) return;
    auto calls = std::make_shared<int>(in_loss ? 0 : -1);  // the shapes of sums take one
    const auto spoil = [calls](const torch::Tensor& x) {   // two micro-batches a step
      return (*calls)++ == 5 ? x * std::numeric_limits<float>::infinity() : x;
    };
    if (in_loss) {
      task.loss = [spoil](const torch::Tensor& x, const torch::Tensor& targets) {
        return spoil(torch::nn::functional::cross_entropy(x.flatten(0, 1), targets.flatten()));
      };
    } else {
      task.layers[0].forward = [spoil, inner = task.layers[0].forward](const torch::Tensor& x) {
        return spoil(inner(x));
      };
    }
  };
  return run_text(2, options);
}

// Whatever was not finite, and where: the step is as if it had not been, on all ranks.
TEST_P(SummedIn, AStepThatIsNotFiniteLeavesNoTrace) {
  const TextOptions options{.settings = with(settings(), {{"train.epochs", "3"}})};
  const StagedResult plain = run_text(2, options);
  const StagedResult loss = spoiled(options, 0, true);
  const StagedResult first = spoiled(options, 1, false);
  EXPECT_THAT(loss.notes, Contains(HasSubstr("gradients of block2.mlp")));
  EXPECT_THAT(first.notes, Contains(HasSubstr("activations of block1.attention' of rank 1")));
  for (const StagedResult* result : {&loss, &first}) {
    EXPECT_EQ(result->summary.skipped_steps, 1u);
    EXPECT_THAT(result->notes, Contains(HasSubstr("step 3 skipped")));
    EXPECT_TRUE(same_bits(result->weights, loss.weights));
    EXPECT_FALSE(same_bits(result->weights, plain.weights));
  }
}

class BetweenNetworks : public ::testing::TestWithParam<Way> {};
const Settings kAdam = {{"optimizer.name", "adam"}, {"optimizer.lr", "0.003"}};
const Settings kMomentum = {{"optimizer.momentum", "0.9"}, {"exchange.momentum", "memory"}};
INSTANTIATE_TEST_SUITE_P(
    Ways, BetweenNetworks,
    ::testing::Values(
        Way{"sidco", with(kAdam, {{"exchange.codec", "sidco:density=0.05"}})},
        Way{"topk_of_all",
            with(kAdam, {{"exchange.codec", "topk:density=0.05"}, {"exchange.grouping", "model"}})},
        Way{"one_threshold", with(kAdam, {{"exchange.codec", "topk:density=0.05"},
                                          {"exchange.grouping", "global"}})},
        Way{"int8_of_all",
            with(kAdam, {{"exchange.codec", "int8"}, {"exchange.grouping", "model"}})},
        Way{"momentum_of_all", with(kMomentum, {{"exchange.codec", "topk:density=0.05"},
                                                {"exchange.grouping", "model"}})},
        Way{"momentum_one_threshold", with(kMomentum, {{"exchange.codec", "topk:density=0.05"},
                                                       {"exchange.grouping", "global"}})},
        Way{"ef21_of_all", with(kAdam, {{"exchange.codec", "topk:density=0.05"},
                                        {"exchange.feedback", "ef21"},
                                        {"exchange.grouping", "model"}})},
        Way{"owners", with(kAdam, {{"exchange.codec", "topk:density=0.05"},
                                   {"exchange.method", "sparse-reduce"},
                                   {"exchange.grouping", "model"}})}),
    [](const auto& way) { return way.param.name; });

// run_text fails where weights differ between ranks, after each epoch and at the end.
TEST_P(BetweenNetworks, WeightsThatRanksHaveWholeStayTheSame) {
  for (const int workers : {2, 4, 6}) {
    const StagedResult result = run_text(
        workers, {.settings = with(with(ranks(2), GetParam().settings), {{"train.epochs", "3"}})});
    EXPECT_LT(result.steps.back().loss, result.steps.front().loss) << workers;
    EXPECT_EQ(result.summary.skipped_steps, 0u);
  }
}

// Of what a loss was computed from, the weight with these sizes; undefined without one.
torch::Tensor weight_behind(const torch::autograd::Node* node, torch::IntArrayRef sizes) {
  if (node == nullptr) return {};
  if (const auto* end = dynamic_cast<const torch::autograd::AccumulateGrad*>(node))
    return end->variable.sizes() == sizes ? end->variable : torch::Tensor();
  for (const auto& edge : node->next_edges())
    if (torch::Tensor found = weight_behind(edge.function.get(), sizes); found.defined())
      return found;
  return {};
}

// In step 4 the gradients of one rank's own weights are so large, in each network, that their sum
// over networks overflows; or, for comparison, the loss of that step is infinite.
StagedResult overflowing(TextOptions options, bool in_exchange) {
  options.change = [=](int rank, Task& task) {
    task.loss = [=, calls = std::make_shared<int>(0)](const torch::Tensor& x,
                                                      const torch::Tensor& targets) {
      const torch::Tensor loss =
          torch::nn::functional::cross_entropy(x.flatten(0, 1), targets.flatten());
      if (!x.requires_grad() || (*calls)++ != 3) return loss;
      if (!in_exchange) return loss * std::numeric_limits<float>::infinity();
      if (rank % 2 == 1)
        weight_behind(loss.grad_fn().get(), {3 * 32, 64})
            .register_hook([calls](const torch::Tensor& g) {
              return *calls == 4 ? torch::full_like(g, 3e38) : g;
            });
      return loss;
    };
  };
  return run_text(4, options);
}

// The exchange of one part sees a fault, that of the other part does not. What memories owe stays
// as it was on all ranks.
TEST(Tensor, AStepThatOnePartCannotExchangeLeavesNoTrace) {
  const Settings residual = {{"exchange.codec", "int4"}, {"exchange.feedback", "residual"}};
  const Settings estimate = {{"exchange.codec", "int4"}, {"exchange.feedback", "ef21"}};
  for (const Settings& codec :
       {residual, estimate, with(residual, {{"exchange.grouping", "model"}})}) {
    const TextOptions options{.settings = with(with(ranks(2), codec), {{"train.epochs", "3"}})};
    const StagedResult bad = overflowing(options, true), other = overflowing(options, false);
    EXPECT_EQ(bad.summary.skipped_steps, 1u);
    EXPECT_EQ(other.summary.skipped_steps, 1u);
    EXPECT_THAT(bad.notes, Contains(AnyOf(HasSubstr("exchange among replicas' of rank 1"),
                                          HasSubstr("attend.weight' has a sum"))));
    EXPECT_TRUE(same_bits(bad.weights, other.weights)) << codec[1].second;
    EXPECT_FALSE(same_bits(bad.weights, run_text(4, options).weights));
  }
}

// Each rank codes its part; all of them learn from the gradient of the sum of codes.
TEST(Tensor, AutoencodersMatchThoseOfOneRank) {
  const Settings more = {{"tensor.autoencoder", "4x"}, {"optimizer.momentum", "0.9"}};
  const StagedResult one = run_text(1, {.settings = with(ranks(1), more)});
  const StagedResult two = run_text(2, {.settings = with(ranks(2), more)});
  EXPECT_LT(distance(two.weights, one.weights), 1e-5);
  EXPECT_NEAR(two.steps.back().loss, one.steps.back().loss, 1e-5);
  EXPECT_EQ(two.weights.size(), text_task().module->parameters().size() + 8);  // two blocks
}

TEST(Tensor, MessagesThatAreCorruptStopAllAndNameTheRank) {
  std::vector<std::string> told(2);
  EXPECT_THROW(run_local(2,
                         [&](Group& group) {
                           testing::TamperingGroup tampering(
                               group, [&](int, int, std::span<std::byte> message) {
                                 if (group.rank() == 1 && message.size() > 10'000)
                                   message[message.size() - 1] ^= std::byte{1};
                               });
                           try {
                             train_text(tampering, {.settings = ranks(2)});
                           } catch (const std::exception& error) {
                             told[static_cast<size_t>(group.rank())] = error.what();
                             throw;
                           }
                         }),
               Error);
  EXPECT_THAT(told[1], HasSubstr("from rank 0: boundary 'block1.attention/forward': "));
  EXPECT_THAT(told[0], HasSubstr("rank 1 failed"));
}

void expect_refused(int workers, const TextOptions& options, const std::string& why) {
  try {
    run_text(workers, options);
    ADD_FAILURE() << "not refused: " << why;
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr(why));
  }
}

TEST(Tensor, RefusesWhatDoesNotFit) {
  expect_refused(3, {.settings = ranks(2)}, "2 ranks need as many workers, or a multiple of that");
  expect_refused(4, {.settings = ranks(4)}, "4 ranks cannot share the 2 heads of layer 'block1'");
  expect_refused(2, {.settings = with(ranks(2), {{"tensor.layers", "3"}})},
                 "tensor.layers: 3 layers, of 2 that ranks share");
  expect_refused(2, {.settings = with(ranks(2), {{"tensor.autoencoder", "65"}})},
                 "tensor.autoencoder: '65' does not go with 64 features");
  try {
    run_staged(2, {.settings = ranks(2)});
    ADD_FAILURE() << "a network whose layers are not split";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("has no layers that ranks can share"));
  }
}

TEST(Tensor, FindsFaultsInARecipe) {
  const auto fault = [](const Settings& more) {
    const Settings network = with({{"model.name", "gpt-mini"}}, ranks(2));
    const auto found = find_faults(toy_recipe(with(network, more)).options);
    return found.empty() ? "" : found.front().key + ": " + found.front().status.message();
  };
  EXPECT_EQ(fault({}), "");
  EXPECT_THAT(fault({{"tensor.forward", "fp17"}}), HasSubstr("tensor.forward: "));
  EXPECT_THAT(fault({{"tensor.backward_memory", "efx"}}), HasSubstr("tensor.backward_memory: "));
  EXPECT_THAT(fault({{"tensor.forward_memory", "aqsgd"}}), HasSubstr("choose none, ef"));
  EXPECT_THAT(fault({{"tensor.forward_memory", "ef"}}), HasSubstr("train.drop_last"));
  EXPECT_THAT(fault({{"tensor.autoencoder", "0"}}), HasSubstr("tensor.autoencoder: '0' must be"));
  EXPECT_THAT(fault({{"model.name", "mlp"}}),
              HasSubstr("tensor.ranks: network mlp has no layers that ranks can share"));
  EXPECT_THAT(fault({{"tensor.ranks", "3"}}),
              HasSubstr("tensor.ranks: 3 ranks cannot share the 4 heads of a block, "
                        "model.hidden / 32; choose one of 1, 2, 4"));
  EXPECT_THAT(fault({{"tensor.layers", "5"}}), HasSubstr("tensor.layers: 5 layers, of 4"));
  EXPECT_THAT(fault({{"tensor.autoencoder", "129"}}),
              HasSubstr("tensor.autoencoder: '129' does not go with 128 features"));
  EXPECT_THAT(fault({{"tensor.ranks", "0"}, {"tensor.autoencoder", "4x"}}),
              HasSubstr("tensor.autoencoder: there is no sum"));
  EXPECT_THAT(fault({{"pipeline.stages", "2"}}), HasSubstr("set one of the two"));
  EXPECT_THAT(fault({{"sync.method", "average"}}), HasSubstr("tensor.ranks: workers that step"));
  EXPECT_THAT(fault({{"optimizer.name", "novograd"}}), HasSubstr("tensor.ranks: novograd"));
  EXPECT_THAT(fault({{"exchange.inside", "2"}}), HasSubstr("tensor parallelism, whose ranks"));
  EXPECT_THAT(fault({{"exchange.codec", "auto"}}), HasSubstr("auto predicts no tensor"));
  EXPECT_THAT(fault({{"run.slow", "2"}}), HasSubstr("run.slow: "));
  EXPECT_THAT(fault({{"run.device", "cuda"}}), HasSubstr("leave tensor.ranks out"));
  EXPECT_THAT(fault({{"exchange.flush", "apply"}}), HasSubstr("exchange.flush: "));
}

}  // namespace
}  // namespace thinwire
