// How many drafts to verify: policy only, told what was measured.
//
// A draft is a token guessed to follow a sequence's last one. A step that computes the last token
// and k drafts after it gives the logits behind each of them, so as many drafts as are what the
// sampler draws come out of one step (Leviathan et al. 2022, arXiv 2211.17192; here a draft is
// accepted when it *equals* the token drawn, so that answers are those of plain decoding, token by
// token). A draft counts only if all before it were right.
//
// Drafts cost rows. The fewest milliseconds per token come from the number of drafts that makes
//    (tokens expected from the step) / (time of a step with that many rows)
// largest. Acceptance estimates the numerator, StepCosts the denominator, both from what they see.
//
// Thread safety: none; the scheduler owns all of this.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/types.h"
#include "engine/ngram_index.h"

namespace tare::engine {

struct SpeculationOptions {
  int most = 0;          // drafts of a sequence in a step; 0: no speculation
  bool adaptive = true;  // no more than pay; otherwise `most` wherever a match is found

  bool on() const { return most > 0; }
};

// Drafts of one sequence in a step that pay at best: with the row they follow one tile of 16.
inline constexpr int kMostDrafts = 15;
// Draft rows of a step over all sequences: each takes a row of logits.
inline constexpr std::uint32_t kMostDraftRows = 64;

// How often what was looked up for one sequence turns out right, by the length of the match. It is
// also told of guesses that were not tried: the token drawn tells at no cost.
class Acceptance {
 public:
  // What text is like before any was seen. For one sequence it forgets within some twenty guesses,
  // as an answer turns from quoting to telling; for all of them together it changes slowly.
  static Acceptance OfOne() { return Acceptance(0.95); }
  static Acceptance OfMany() { return Acceptance(0.998); }
  // For a new sequence: like the others, until it shows to be different.
  Acceptance BeginningLikeThis() const;

  // That the token after a match of this length is the one drawn.
  double Chance(std::uint32_t length) const;
  void Note(std::uint32_t length, bool right);

 private:
  explicit Acceptance(double keep);
  struct Kind {
    double right = 0.0;
    double tried = 0.0;
  };
  static constexpr std::size_t kKinds = 5;
  static std::size_t KindOf(std::uint32_t length);
  std::array<Kind, kKinds> kinds_;
  double keep_;  // of what was seen, with every new guess
};

// Times of steps by their number of rows.
class StepCosts {
 public:
  void Note(std::uint32_t rows, Nanos elapsed);
  // Whether steps of about so many rows have been seen lately.
  bool Knows(std::uint32_t rows) const;
  // Seconds; between numbers of rows that have been seen interpolated, past the largest a little
  // more per row. `rows` is known or more than a known one.
  double Seconds(std::uint32_t rows) const;

 private:
  struct Entry {
    double seconds = 0.0;
    double rows = 0.0;
    std::uint64_t seen = 0;  // number of the step
  };
  static constexpr std::size_t kEntries = 96;
  static std::size_t EntryOf(std::uint32_t rows);
  bool Fresh(const Entry& entry) const;
  std::array<Entry, kEntries> entries_;
  std::uint64_t steps_ = 0;
};

// A sequence that may have drafts in the step being planned.
struct DraftCandidate {
  const Acceptance* acceptance = nullptr;
  std::uint32_t match_length = 0;
  std::uint32_t most = 0;    // drafts it has a use for
  std::uint32_t chosen = 0;  // filled by ChooseDrafts
};

struct StepSoFar {
  std::uint32_t rows = 0;      // without drafts
  std::uint32_t decoding = 0;  // sequences that get a token from it
  std::uint32_t budget = 0;    // rows that may be added
};

// Gives drafts to the candidates, likeliest first, as many as make the expected tokens per second
// largest; none when that is hardly more than without. Sequences without drafts never wait more
// than a quarter longer for theirs.
void ChooseDrafts(const StepSoFar& step, const StepCosts& costs,
                  std::span<DraftCandidate> candidates);
// The same without looking at times: all that the budget allows, shared out evenly.
void ChooseAllDrafts(const StepSoFar& step, std::span<DraftCandidate> candidates);

}  // namespace tare::engine
