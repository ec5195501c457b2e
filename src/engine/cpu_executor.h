// Runs steps on this machine: page copies, the model's forward pass, logits.
//
// Ownership: refers to the model, owns the KV pages and the logits. Thread safety: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "engine/executor.h"
#include "kernels/kv_pages.h"
#include "model/language_model.h"

namespace tare::engine {

class CpuExecutor final : public Executor {
 public:
  // Reserves memory for `pages` pages. `model` and `clock` must outlive the executor.
  static Result<std::unique_ptr<CpuExecutor>> Create(model::LanguageModel& model,
                                                     kernels::KvType kv_type, std::uint32_t pages,
                                                     const Clock& clock);

  // Order: copies, one after the other; discards; the forward pass.
  Result<StepResult> Run(const StepPlan& plan) override;

  struct WarmUpTimes {
    Nanos touch_pages{};
    std::size_t touched_bytes = 0;
    std::size_t huge_bytes = 0;  // of them in huge pages
    Nanos warm_kernels{};
    Nanos copy_page{};    // one page copied to memory not touched yet
    Nanos return_page{};  // one page given back to the operating system
  };
  // Before any step: touches the first `pages` pages and computes `rows` rows of nonsense, so that
  // no request pays for page faults and first-time set-up.
  WarmUpTimes WarmUp(std::uint32_t pages, int rows);

  std::size_t page_bytes() const { return page_bytes_; }

 private:
  CpuExecutor(model::LanguageModel& model, kernels::KvPages kv, const Clock& clock);

  model::LanguageModel& model_;
  kernels::KvPages kv_;
  const Clock& clock_;
  std::size_t page_bytes_;
  std::vector<float> logits_;  // [rows wanting them, vocab]; keeps its size
  std::vector<kernels::SequenceRows> sequences_;
  std::vector<int> logit_rows_;
  std::vector<const model::LoraAdapter*> adapters_;  // of sequences_
};

// Bytes one page takes over all layers.
std::size_t PageBytes(const kernels::KvShape& shape);

}  // namespace tare::engine
