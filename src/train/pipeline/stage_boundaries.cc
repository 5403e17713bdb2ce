// Makes the boundary specs of both directions at both cuts, and this rank's ends.
// SPDX-License-Identifier: Apache-2.0
#include "train/pipeline/stage_boundaries.h"

#include <utility>

#include "train/pipeline/agreed_value.h"

namespace thinwire {
namespace {

// The same without compression.
BoundarySpec plain(BoundarySpec spec) {
  spec.codec = "fp32";
  spec.memory = "none";
  spec.per_sample = false;
  spec.note_positions = nullptr;
  spec.at_positions = nullptr;
  return spec;
}

bool keeps_caches(const BoundarySpec& spec) {
  return agreed(find_boundary_memory(spec.memory)).entry->by_id;
}

}  // namespace

// Makes the ends of one cut after the other.
struct StageBoundaries::Maker {
  const PipelineOptions& options;
  const StagePlan& plan;
  const Task& task;
  const StepShape& shape;
  Store& store;
  StageBoundaries& to;

  BoundarySpec spec_of(size_t cut, bool backward) const {
    BoundarySpec spec = boundary_options(options, cut, backward);
    spec.name = plan.cut_name(task, cut) + (backward ? "/backward" : "/forward");
    spec.sample_shape = plan.crossing[cut];
    spec.samples = shape.samples;
    spec.micro_batches = shape.micro_batches;
    // Pipelines draw independently; both ends of a boundary are of the same one.
    spec.seed = shape.seed + plan.replica * 0x9e3779b97f4a7c15;
    spec.steps_per_epoch = shape.steps_per_epoch;
    spec.first_step = shape.first_step;
    spec.sender = static_cast<uint16_t>(plan.rank_of(backward ? cut + 1 : cut));
    return spec;
  }

  // End is BoundarySender or BoundaryReceiver.
  template <typename End>
  End* open(const BoundarySpec& spec, auto make, const char* side, bool in_store) {
    const auto made = [&] { return agreed(make(spec)); };
    End* end = nullptr;
    if (in_store && (options.save_caches || !keeps_caches(spec))) {
      end = &store.open<End>("pipeline/" + spec.name + side, made);
    } else {
      auto own = made();
      end = own.get();
      to.own_.push_back(std::move(own));
    }
    if (keeps_caches(spec)) to.caches_.push_back(end);
    return end;
  }

  BoundaryReceiver* mirror(const BoundarySpec& spec, bool in_store) {
    if (!options.decoupling) return nullptr;
    return open<BoundaryReceiver>(spec, make_boundary_receiver, "/mirror", in_store);
  }

  void out(const BoundarySpec& spec, WayOut& compressed, WayOut& warm) {
    compressed.end = open<BoundarySender>(spec, make_boundary_sender, "/sender", true);
    compressed.limit = compressed.end->max_message_size();
    compressed.mirror = mirror(spec, true);
    if (keeps_caches(spec)) {
      warm = compressed;
      return;
    }
    warm.end = open<BoundarySender>(plain(spec), make_boundary_sender, "", false);
    warm.limit = warm.end->max_message_size();
    warm.mirror = mirror(plain(spec), false);
  }

  void in(const BoundarySpec& spec, WayIn& compressed, WayIn& warm) {
    compressed.end = open<BoundaryReceiver>(spec, make_boundary_receiver, "/receiver", true);
    compressed.limit = agreed(make_boundary_sender(spec))->max_message_size();
    if (keeps_caches(spec)) {
      warm = compressed;
      return;
    }
    warm.end = open<BoundaryReceiver>(plain(spec), make_boundary_receiver, "", false);
    warm.limit = agreed(make_boundary_sender(plain(spec)))->max_message_size();
  }

  // One cut, of which this stage is in front or behind.
  void make_cut(size_t cut, bool in_front) {
    BoundarySpec forward = spec_of(cut, false), backward = spec_of(cut, true);
    if (options.shared_positions)
      forward.note_positions = backward.at_positions = make_kept_positions();
    if (in_front) {
      out(forward, to.compressed_.activations_out, to.warm_.activations_out);
      in(backward, to.compressed_.gradients_in, to.warm_.gradients_in);
    } else {
      in(forward, to.compressed_.activations_in, to.warm_.activations_in);
      out(backward, to.compressed_.gradients_out, to.warm_.gradients_out);
    }
  }
};

StageBoundaries::StageBoundaries(const PipelineOptions& options, const StagePlan& plan,
                                 const Task& task, const StepShape& shape, Store& store) {
  Maker maker{
      .options = options, .plan = plan, .task = task, .shape = shape, .store = store, .to = *this};
  if (!plan.is_first()) maker.make_cut(plan.stage - 1, /*in_front=*/false);
  if (!plan.is_last()) maker.make_cut(plan.stage, /*in_front=*/true);
}

void StageBoundaries::each(const StageWays& ways, const auto& visit) {
  for (BoundaryEnd* end : {static_cast<BoundaryEnd*>(ways.activations_in.end),
                           static_cast<BoundaryEnd*>(ways.gradients_in.end),
                           static_cast<BoundaryEnd*>(ways.activations_out.end),
                           static_cast<BoundaryEnd*>(ways.gradients_out.end),
                           static_cast<BoundaryEnd*>(ways.activations_out.mirror),
                           static_cast<BoundaryEnd*>(ways.gradients_out.mirror)})
    if (end != nullptr) visit(*end);
}

void StageBoundaries::commit(bool warming_up) {
  each(ways(warming_up), [](BoundaryEnd& end) { end.commit(); });
}

void StageBoundaries::rollback(bool warming_up) {
  each(ways(warming_up), [](BoundaryEnd& end) { end.rollback(); });
}

void StageBoundaries::begin_epoch_of_warmup() {
  for (BoundaryEnd* end : caches_) end->invalidate();
}

}  // namespace thinwire
