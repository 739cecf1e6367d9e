package org.apache.zookeeper.server;

/**
 * Stands before ZooKeeper's class of this name: a server that is started without asking for a gate has one all the same, so
 * that no test can meet another server than the one outside.
 */
public class NIOServerCnxnFactory extends plinth.keeper.Gate {}
