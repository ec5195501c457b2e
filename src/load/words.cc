#include "load/words.h"

#include <array>

namespace tare::load {
namespace {

constexpr std::array kWords = std::to_array<std::string_view>(
    {"the",      "and",      "for",     "that",     "this",   "with",    "you",     "not",
     "are",      "from",     "have",    "was",      "can",    "will",    "all",     "one",
     "which",    "more",     "other",   "when",     "time",   "use",     "there",   "they",
     "what",     "some",     "about",   "also",     "into",   "only",    "out",     "new",
     "has",      "but",      "who",     "their",    "would",  "been",    "first",   "like",
     "than",     "then",     "your",    "its",      "were",   "any",     "these",   "how",
     "each",     "many",     "where",   "two",      "may",    "see",     "way",     "them",
     "now",      "make",     "over",    "most",     "such",   "through", "after",   "between",
     "people",   "work",     "year",    "part",     "number", "name",    "data",    "world",
     "life",     "day",      "same",    "here",     "set",    "system",  "because", "must",
     "while",    "should",   "both",    "long",     "does",   "place",   "state",   "get",
     "high",     "used",     "before",  "being",    "under",  "well",    "know",    "take",
     "group",    "very",     "back",    "using",    "right",  "just",    "good",    "even",
     "again",    "three",    "could",   "value",    "line",   "form",    "order",   "point",
     "find",     "end",      "small",   "case",     "help",   "need",    "free",    "off",
     "example",  "public",   "water",   "fact",     "main",   "start",   "show",    "family",
     "open",     "home",     "school",  "often",    "down",   "own",     "body",    "great",
     "second",   "side",     "level",   "last",     "power",  "area",    "book",    "large",
     "local",    "change",   "program", "process",  "result", "study",   "next",    "play",
     "code",     "read",     "list",    "possible", "run",    "type",    "less",    "light",
     "question", "function", "page",    "problem",  "class",  "test",    "table",   "key",
     "text",     "file",     "user",    "event",    "model",  "return",  "true",    "human",
     "science",  "language", "history", "art",      "music",  "city",    "land",    "sea",
     "air",      "fire",     "earth",   "tree",     "food",   "house",   "door",    "road",
     "car",      "hand",     "head",    "face",     "eye",    "heart",   "mind",    "word",
     "story",    "paper",    "letter",  "color",    "white",  "black",   "red",     "green",
     "blue",     "young",    "old",     "early",    "late",   "real"});

}  // namespace

std::span<const std::string_view> CommonWords() { return kWords; }

}  // namespace tare::load
