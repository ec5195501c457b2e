#include "sim/replica.h"

#include <algorithm>

#include "base/check.h"

namespace tare::sim {

Result<Replica> Replica::Create(const ReplicaOptions& options, std::shared_ptr<const StepTime> time,
                                ReplicaObserver& observer) {
  TARE_TRY(engine::Scheduler scheduler, engine::Scheduler::Create(options.scheduler));
  return Replica(options, std::move(scheduler), std::move(time), observer);
}

Status Replica::Submit(SimRequest request, Nanos at, bool measured) {
  engine::SequenceSpec spec;
  spec.id = SequenceId{next_sequence_};
  spec.prompt = PromptTokens(request);
  spec.max_new_tokens = std::max(1, request.output_tokens);
  spec.tier = request.tier;
  // What nobody shares cannot be found again: without it the result is the same, and faster.
  spec.use_prefix_cache = !request.blocks.empty();
  if (!in_flight_ && answers_.empty()) ready_at_ = at;
  TARE_RETURN_IF_ERROR(scheduler_.Submit(std::move(spec), at));
  // An idle engine that waits for company looks again when some comes.
  if (!in_flight_ && ready_at_ > at) ready_at_ = at;
  Answer answer;
  answer.request = std::move(request);
  answer.submitted = at;
  answer.measured = measured;
  answers_.emplace(next_sequence_++, std::move(answer));
  return {};
}

Nanos Replica::NextEvent() const {
  if (in_flight_) return ends_;
  return answers_.empty() ? Nanos::max() : ready_at_;
}

Nanos Replica::AdvanceTo(Nanos until, bool stop_at_end) {
  while (true) {
    if (in_flight_) {
      if (ends_ > until) return until;
      const Nanos end = ends_;
      if (skipped_) {
        EndSkippedStep();
      } else if (CommitStep() && stop_at_end) {
        return end;
      }
    } else {
      if (answers_.empty() || ready_at_ >= until) return until;
      if (!options_.fast_forward || !FastForward(until)) PlanStep();
    }
  }
}

void Replica::PlanStep() {
  began_ = ready_at_;
  plan_ = scheduler_.Plan(ready_at_);
  if (plan_.slices.empty()) {
    // The batch window of an idle engine is open, or only copies were to be made.
    scheduler_.Commit(plan_, {});
    const std::optional<Nanos> wake = scheduler_.WakeAt();
    ready_at_ = wake && *wake > began_ ? *wake : began_ + Nanos{1};
    return;
  }
  ends_ = began_ + executor_.TimeOf(LoadOf(plan_));
  in_flight_ = true;
  skipped_ = false;
}

bool Replica::CommitStep() {
  in_flight_ = false;
  ready_at_ = ends_;
  ++steps_;
  busy_seconds_ += ToSeconds(ends_ - began_);
  std::vector<engine::SampledToken> sampled;
  for (const engine::PlannedSlice& slice : plan_.slices) {
    if (slice.wants_logits) sampled.push_back({});
  }
  for (const engine::PlannedSlice& slice : plan_.slices) {
    Answer& answer = answers_.at(ToInt(slice.sequence));
    // Admitted by this plan or an earlier one; asked while the scheduler still knows it.
    if (answer.tokens == 0) answer.cached_tokens = scheduler_.CachedTokens(slice.sequence);
  }
  const std::vector<engine::EndedSequence> ended = scheduler_.Commit(plan_, sampled);

  going_on_.clear();
  going_on_measured_ = 0;
  context_ = 0;
  std::size_t next_ended = 0;
  for (const engine::PlannedSlice& slice : plan_.slices) {
    if (!slice.wants_logits) continue;
    Answer& answer = answers_.at(ToInt(slice.sequence));
    if (answer.tokens == 0) {
      answer.first_token = ends_;
      observer_->OnFirstToken(ends_);
    } else {
      const Nanos gap = ends_ - answer.last_token;
      answer.longest_gap = std::max(answer.longest_gap, gap);
      observer_->OnTokens(ends_, 1, gap, answer.measured ? 1 : 0);
    }
    ++answer.tokens;
    answer.last_token = ends_;
    // Ended sequences come in the order of slices.
    if (next_ended < ended.size() && ended[next_ended].id == slice.sequence) {
      ++next_ended;
      observer_->OnEnd(answer);
      answers_.erase(ToInt(slice.sequence));
      continue;
    }
    going_on_.push_back(&answer);
    going_on_measured_ += answer.measured;
    context_ += slice.start + slice.num_tokens + 1;
  }
  TARE_CHECK(next_ended == ended.size());
  return !ended.empty();
}

bool Replica::FastForward(Nanos until) {
  // Only when every running sequence has just got a token do all gaps equal the step's time.
  if (going_on_.empty()) return false;
  const std::uint32_t ahead = scheduler_.DecodesAhead();
  if (ahead == 0 || scheduler_.running() != going_on_.size()) return false;
  for (const Answer* answer : going_on_) {
    if (answer->last_token != ready_at_) return false;
  }
  const auto count = static_cast<double>(going_on_.size());
  Nanos longest{};
  std::uint32_t done = 0;
  while (done < ahead && ready_at_ < until) {
    const Nanos took = executor_.TimeOf(DecodeLoad(count, context_));
    context_ += count;
    ++done;
    if (ready_at_ + took > until) {
      // Taken by the scheduler, but its tokens are still to come.
      began_ = ready_at_;
      ends_ = ready_at_ + took;
      in_flight_ = skipped_ = true;
      break;
    }
    ready_at_ += took;
    ++steps_;
    busy_seconds_ += ToSeconds(took);
    longest = std::max(longest, took);
    observer_->OnTokens(ready_at_, going_on_.size(), took, going_on_measured_);
  }
  scheduler_.AdvanceDecodes(done, TokenId{});
  const std::uint32_t told = done - (in_flight_ ? 1 : 0);
  for (Answer* answer : going_on_) {
    answer->tokens += static_cast<int>(told);
    answer->last_token = ready_at_;
    answer->longest_gap = std::max(answer->longest_gap, longest);
  }
  return true;
}

void Replica::EndSkippedStep() {
  in_flight_ = skipped_ = false;
  ready_at_ = ends_;
  ++steps_;
  const Nanos took = ends_ - began_;
  busy_seconds_ += ToSeconds(took);
  observer_->OnTokens(ends_, going_on_.size(), took, going_on_measured_);
  for (Answer* answer : going_on_) {
    ++answer->tokens;
    answer->last_token = ends_;
    answer->longest_gap = std::max(answer->longest_gap, took);
  }
}

std::vector<Answer> Replica::Abandon() {
  std::vector<Answer> open;
  for (auto& [sequence, answer] : answers_) open.push_back(std::move(answer));
  // By request, not by the hash table's order.
  std::sort(open.begin(), open.end(),
            [](const Answer& a, const Answer& b) { return a.request.index < b.request.index; });
  answers_.clear();
  going_on_.clear();
  in_flight_ = false;
  return open;
}

}  // namespace tare::sim
