select {asides} from {table outbox_asides} where group_name = $group and seq = $seq {lock}
