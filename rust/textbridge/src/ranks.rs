//! Byte-pair merging by rank, as tiktoken does it: no list of merges; of all neighbours whose bytes
//! together are a token, the pair with the lowest rank merges first, the leftmost of equals.
//!
//! tiktoken scans all pairs for every merge, quadratic in the length of a piece; here a heap makes a
//! piece of n bytes cost n log n, so that a megabyte of one letter is no weapon.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use crate::pieces::{byte_level_bytes, byte_level_spelling};

pub struct RankBpe {
    ids: HashMap<Vec<u8>, u32>,
    /// Token by id; None for ids the file leaves out.
    tokens: Vec<Option<Vec<u8>>>,
}

impl RankBpe {
    /// `file`: lines of a token in base64 and its rank, which is its id.
    pub fn parse(file: &str) -> Result<Self, String> {
        let mut ids = HashMap::new();
        let mut tokens: Vec<Option<Vec<u8>>> = Vec::new();
        for (number, line) in file.lines().enumerate().filter(|(_, line)| !line.is_empty()) {
            let broken = |why: &str| format!("line {}: {why}", number + 1);
            let (token, rank) = line.split_once(' ').ok_or_else(|| broken("not 'token rank'"))?;
            let token = decode_base64(token).ok_or_else(|| broken("not base64"))?;
            let rank: u32 = rank.trim().parse().map_err(|_| broken("the rank is no number"))?;
            if token.is_empty() || rank as usize >= 1 << 24 {
                return Err(broken("an empty token, or a rank of 2^24 or more"));
            }
            if tokens.len() <= rank as usize {
                tokens.resize(rank as usize + 1, None);
            }
            if ids.insert(token.clone(), rank).is_some() || tokens[rank as usize].is_some() {
                return Err(broken("a token or rank that was there before"));
            }
            tokens[rank as usize] = Some(token);
        }
        if let Some(byte) = (0..=255u8).find(|byte| !ids.contains_key([*byte].as_slice())) {
            return Err(format!("no token for the byte {byte:#04x}"));
        }
        Ok(Self { ids, tokens })
    }

    pub fn size(&self) -> usize {
        self.tokens.len()
    }

    /// Tokens in the spelling of byte-level vocabularies.
    pub fn vocabulary(&self) -> HashMap<String, u32> {
        self.ids.iter().map(|(token, id)| (byte_level_spelling(token), *id)).collect()
    }

    /// The id of a token in that spelling.
    pub fn id(&self, spelled: &str) -> Option<u32> {
        self.ids.get(&byte_level_bytes(spelled)?).copied()
    }

    pub fn token(&self, id: u32) -> Option<String> {
        self.tokens.get(id as usize)?.as_deref().map(byte_level_spelling)
    }

    /// The ids of one piece with the end of each token in it.
    pub fn encode(&self, piece: &[u8]) -> Vec<(u32, usize)> {
        if let Some(id) = self.ids.get(piece) {
            return vec![(*id, piece.len())];
        }
        // Parts are known by where they begin. end[i] is where part i ends; 0 when it was merged
        // into the one before, which before[i] finds.
        let n = piece.len();
        let mut end: Vec<usize> = (1..=n).collect();
        let mut before: Vec<usize> = (0..n).map(|i| i.wrapping_sub(1)).collect();
        let mut heap = BinaryHeap::new();
        let offer = |heap: &mut BinaryHeap<_>, from: usize, to: usize| {
            if let Some(rank) = self.ids.get(&piece[from..to]) {
                heap.push(Reverse((*rank, from, to)));
            }
        };
        for i in 0..n.saturating_sub(1) {
            offer(&mut heap, i, i + 2);
        }
        while let Some(Reverse((_, from, to))) = heap.pop() {
            let middle = end[from];
            // An offer from before one of its parts changed.
            if middle == 0 || middle >= n || end[middle] != to {
                continue;
            }
            end[from] = to;
            end[middle] = 0;
            if to < n {
                before[to] = from;
                offer(&mut heap, from, end[to]);
            }
            if from > 0 {
                offer(&mut heap, before[from], to);
            }
        }
        let mut parts = Vec::new();
        let mut at = 0;
        while at < n {
            parts.push((self.ids.get(&piece[at..end[at]]).copied().unwrap_or(0), end[at]));
            at = end[at];
        }
        parts
    }
}

fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    let (mut value, mut bits) = (0u32, 0);
    for c in text.trim_end_matches('=').bytes() {
        let digit = match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a' + 26,
            b'0'..=b'9' => c - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        value = (value << 6 | u32::from(digit)) & 0xFF_FFFF;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            out.push((value >> bits) as u8);
        }
    }
    Some(out)
}
