//! Finds a short circle in a graph.

use std::collections::VecDeque;

/// Why one node comes before another. Objects by their numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Why {
    Read(u32),
    Write(u32),
    Anti(u32),
    Time,
    /// Both nodes are one transaction.
    Itself,
}

#[derive(Clone, Copy)]
struct Edge {
    from: u32,
    to: u32,
    why: Why,
}

pub(crate) struct Graph {
    edges: Vec<Edge>,
    /// Until it is sealed: the number of edges that leave each node. Then where they end.
    ends: Vec<u32>,
}

/// Edges that the search for the shortest circle may follow. Then it is content with the shortest that it has found.
const EDGES_FOLLOWED_MAX: usize = 20_000_000;

impl Graph {
    pub fn new(nodes: usize, edges: usize) -> Graph {
        Graph {
            edges: Vec::with_capacity(edges),
            ends: vec![0; nodes],
        }
    }

    pub fn add(&mut self, from: u32, to: u32, why: Why) {
        self.edges.push(Edge { from, to, why });
    }

    /// The shortest circle, by the number of its transactions: nodes below `transactions` are those of transactions,
    /// others cost nothing. Each node comes with why the next one follows. The more an edge goes `back` in time, the
    /// earlier a circle through it is looked for: it is the likely culprit, if the search cannot try all.
    pub fn cycle(
        mut self,
        transactions: u32,
        back: impl Fn(u32, u32) -> u64,
    ) -> Option<Vec<(u32, Why)>> {
        self.seal();
        let left = self.on_circles();
        if !left.contains(&true) {
            return None;
        }
        let mut search = Search {
            graph: &self,
            left: &left,
            transactions,
            cost: vec![u32::MAX; self.ends.len()],
            came: vec![u32::MAX; self.ends.len()],
            touched: Vec::new(),
            queue: VecDeque::new(),
            followed: 0,
        };
        let mut best: Option<Vec<u32>> = None;
        let mut best_cost = u32::MAX;
        for start in self.starts(&left, transactions, back) {
            if search.followed > EDGES_FOLLOWED_MAX && best.is_some() {
                break;
            }
            if let Some((cost, edges)) = search.from(start, best_cost) {
                best_cost = cost;
                best = Some(edges);
            }
        }
        let edges = best.expect("a circle goes through a transaction");
        let told = edges.into_iter().map(|at| self.edges[at as usize]);
        Some(told.map(|edge| (edge.from, edge.why)).collect())
    }

    /// Where circles are looked for, in that order.
    fn starts(&self, left: &[bool], transactions: u32, back: impl Fn(u32, u32) -> u64) -> Vec<u32> {
        let is_asked = |node: u32| node < transactions && left[node as usize];
        let mut starts: Vec<(u64, u32)> = Vec::new();
        for node in (0..transactions).filter(|&node| is_asked(node)) {
            let edges = self.edges[self.leaving(node)].iter();
            let farthest = edges
                .filter(|edge| is_asked(edge.to))
                .map(|edge| back(node, edge.to));
            starts.push((farthest.max().unwrap_or(0), node));
        }
        starts.sort_unstable_by_key(|&(farthest, node)| (std::cmp::Reverse(farthest), node));
        starts.into_iter().map(|start| start.1).collect()
    }

    /// Sorts the edges by the node that they leave.
    fn seal(&mut self) {
        self.edges.sort_unstable_by_key(|edge| (edge.from, edge.to));
        for edge in &self.edges {
            self.ends[edge.from as usize] += 1;
        }
        let mut sum = 0;
        for end in &mut self.ends {
            sum += *end;
            *end = sum;
        }
    }

    fn leaving(&self, node: u32) -> std::ops::Range<usize> {
        let node = node as usize;
        let begin = node
            .checked_sub(1)
            .map_or(0, |before| self.ends[before] as usize);
        begin..self.ends[node] as usize
    }

    /// True for nodes that are left when those are taken away, again and again, to which no edge leads. Each of them
    /// lies on a circle, or behind one; so those are taken away, too, from which no edge leads on.
    fn on_circles(&self) -> Vec<bool> {
        let mut left = vec![true; self.ends.len()];
        let mut arriving = vec![0u32; self.ends.len()];
        for edge in &self.edges {
            arriving[edge.to as usize] += 1;
        }
        let mut free: Vec<u32> = (0..)
            .zip(&arriving)
            .filter(|(_, count)| **count == 0)
            .map(|(node, _)| node)
            .collect();
        while let Some(node) = free.pop() {
            left[node as usize] = false;
            for edge in &self.edges[self.leaving(node)] {
                arriving[edge.to as usize] -= 1;
                if arriving[edge.to as usize] == 0 {
                    free.push(edge.to);
                }
            }
        }
        if left.contains(&true) {
            self.take_away_ends(&mut left);
        }
        left
    }

    fn take_away_ends(&self, left: &mut [bool]) {
        let mut back: Vec<(u32, u32)> =
            self.edges.iter().map(|edge| (edge.to, edge.from)).collect();
        back.retain(|(to, from)| left[*to as usize] && left[*from as usize]);
        back.sort_unstable();
        let mut leaving = vec![0u32; self.ends.len()];
        for (_, from) in &back {
            leaving[*from as usize] += 1;
        }
        let is_end = |node: &u32| left[*node as usize] && leaving[*node as usize] == 0;
        let mut free: Vec<u32> = (0..self.ends.len() as u32).filter(is_end).collect();
        while let Some(node) = free.pop() {
            left[node as usize] = false;
            let begin = back.partition_point(|entry| entry.0 < node);
            for (_, from) in back[begin..].iter().take_while(|entry| entry.0 == node) {
                leaving[*from as usize] -= 1;
                if leaving[*from as usize] == 0 {
                    free.push(*from);
                }
            }
        }
    }
}

/// A search in breadth from one node after another. An edge costs 1 if it leads to another transaction.
struct Search<'g> {
    graph: &'g Graph,
    left: &'g [bool],
    transactions: u32,
    cost: Vec<u32>,
    /// The edge by which each node was reached.
    came: Vec<u32>,
    touched: Vec<u32>,
    queue: VecDeque<u32>,
    followed: usize,
}

impl Search<'_> {
    /// The edges of the shortest circle through `start`, if it costs less than `below`.
    fn from(&mut self, start: u32, below: u32) -> Option<(u32, Vec<u32>)> {
        for node in self.touched.drain(..) {
            self.cost[node as usize] = u32::MAX;
        }
        self.queue.clear();
        let mut found: Option<(u32, u32)> = None;
        self.reach(start, 0, u32::MAX, false);
        while let Some(node) = self.queue.pop_front() {
            let so_far = self.cost[node as usize];
            if so_far >= found.map_or(below, |found| found.0) {
                break;
            }
            for at in self.graph.leaving(node) {
                let Edge { to, why, .. } = self.graph.edges[at];
                if !self.left[to as usize] {
                    continue;
                }
                self.followed += 1;
                let step = u32::from(to < self.transactions && why != Why::Itself);
                let cost = so_far + step;
                if to == start {
                    if cost < found.map_or(below, |found| found.0) {
                        found = Some((cost, at as u32));
                    }
                } else if cost < self.cost[to as usize] {
                    self.reach(to, cost, at as u32, step == 0);
                }
            }
        }
        let (cost, last) = found?;
        let mut edges = vec![last];
        let mut node = self.graph.edges[last as usize].from;
        while node != start {
            let edge = self.came[node as usize];
            edges.push(edge);
            node = self.graph.edges[edge as usize].from;
        }
        edges.reverse();
        Some((cost, edges))
    }

    fn reach(&mut self, node: u32, cost: u32, by: u32, is_free: bool) {
        if self.cost[node as usize] == u32::MAX {
            self.touched.push(node);
        }
        self.cost[node as usize] = cost;
        self.came[node as usize] = by;
        if is_free {
            self.queue.push_front(node);
        } else {
            self.queue.push_back(node);
        }
    }
}
